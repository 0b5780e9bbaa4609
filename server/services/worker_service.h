#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "tandem/v1/worker.grpc.pb.h"
#include "tracing/tracer.h"

namespace tandem {

// The service that routers call on a worker: passes calls to the engine, and the engine's output
// back. A call that is cancelled, or whose deadline passes, cancels its work.
class WorkerService final : public v1::Worker::CallbackService {
 public:
  // `data_address`: where a decode worker receives KV. `load_changed` is called on the engine's
  // thread whenever a request has ended. The engine and all that it calls outlive this. `tracer`
  // outlives this as well; null: no spans are made. Constructor and destructor are defined in the
  // .cc file, because gRPC's templates take long to compile.
  WorkerService(Engine& engine, std::string data_address, std::function<void()> load_changed,
                const Tracer* tracer = nullptr);
  ~WorkerService() override;

  grpc::ServerWriteReactor<v1::WorkerEvent>* Generate(
      grpc::CallbackServerContext* context, const v1::GenerateOnWorkerRequest* request) override;
  grpc::ServerWriteReactor<v1::WorkerEvent>* Prefill(grpc::CallbackServerContext* context,
                                                     const v1::PrefillRequest* request) override;
  grpc::ServerWriteReactor<v1::WorkerEvent>* Decode(grpc::CallbackServerContext* context,
                                                    const v1::DecodeRequest* request) override;
  grpc::ServerUnaryReactor* Reserve(grpc::CallbackServerContext* context,
                                    const v1::ReserveRequest* request,
                                    v1::ReserveResponse* response) override;
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context,
                                    const v1::ReleaseRequest* request,
                                    v1::ReleaseResponse* response) override;
  grpc::ServerUnaryReactor* EndChoice(grpc::CallbackServerContext* context,
                                      const v1::EndChoiceRequest* request,
                                      v1::EndChoiceResponse* response) override;

 private:
  // Whether a call is meant for this process. FAILED_PRECONDITION if it is for a worker of another
  // role, NOT_FOUND if it is for an earlier or later process of this worker's name.
  absl::Status CheckMeant(Role role, uint64_t epoch) const;

  Engine& engine_;
  const std::string data_address_;
  const std::function<void()> load_changed_;
  const Tracer* const tracer_;
};

}  // namespace tandem
