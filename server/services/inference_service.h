#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "router/event_loop.h"
#include "router/request/answer_buffers.h"
#include "router/router.h"
#include "server/access/access_control.h"
#include "server/services/header_limit.h"
#include "tandem/v1/inference.grpc.pb.h"

namespace tandem {

struct InferenceServiceOptions {
  // A longer request is the client's fault (INVALID_ARGUMENT). gRPC itself refuses much longer ones
  // with RESOURCE_EXHAUSTED.
  size_t max_message_bytes = 4 << 20;
  // How much of one stream may wait beyond what the network takes; a slower reader is cancelled.
  size_t max_queued_bytes = 256 << 10;
  // How long a stream that was ended for that may stay open for its client to learn why.
  Duration slow_reader_grace = std::chrono::seconds(10);
  // How long a client may take to read an answer that has ended, where its deadline is not nearer.
  Duration max_reading_time = std::chrono::minutes(10);
  // Asked about each call; null: every call is served. Outlives the service.
  AccessControl* access = nullptr;
  // Judges the headers of each call; null: however many are taken. Outlives the service.
  HeaderLimit* headers = nullptr;
  // Adds what the router itself does not know of its process; thread-safe.
  std::function<void(v1::GetStatusResponse&)> add_process;
};

// The raw methods take bytes: gRPC answers text that is not UTF-8, which protobuf refuses to parse,
// with a bare UNIMPLEMENTED; we say which field it was.
using InferenceServiceBase = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_Tokenize<v1::Inference::WithRawCallbackMethod_Explain<
        v1::Inference::WithCallbackMethod_GetStatus<v1::Inference::Service>>>>;

// What clients call: parses, hands over to the router, maps errors.
class InferenceService final : public InferenceServiceBase {
 public:
  // All outlive it. Constructor and destructor are not in line, because those of gRPC's templates take a
  // compiler long, in every file that makes a service.
  InferenceService(Router& router, EventLoop& loop, AnswerBuffers& answers,
                   InferenceServiceOptions options);
  ~InferenceService() override;

  grpc::ServerWriteReactor<grpc::ByteBuffer>* Generate(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Explain(grpc::CallbackServerContext* context,
                                    const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetStatus(grpc::CallbackServerContext* context,
                                      const v1::GetStatusRequest* request,
                                      v1::GetStatusResponse* response) override;

 private:
  // Returns the caller, where that is known. Refuses calls with too many headers, or without the scope.
  absl::StatusOr<std::optional<Caller>> Admit(const grpc::CallbackServerContext& context,
                                              Scope needed) const;

  Router& router_;
  EventLoop& loop_;
  AnswerBuffers& answers_;
  const InferenceServiceOptions options_;
};

}  // namespace tandem
