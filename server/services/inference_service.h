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
  // The largest request that is accepted; a larger one gets INVALID_ARGUMENT. gRPC itself refuses
  // requests of more than kGrpcLimitFactor times this size with RESOURCE_EXHAUSTED.
  size_t max_message_bytes = 4 << 20;
  // How many bytes of one stream may be queued beyond those that the network has taken; the stream
  // of a client that reads more slowly is ended.
  size_t max_queued_bytes = 256 << 10;
  // How long a stream that was ended because its client reads too slowly may stay open for the
  // client to read the reason.
  Duration slow_reader_grace = std::chrono::seconds(10);
  // How long a client may take to read an answer that has ended, where its deadline is not nearer.
  Duration max_reading_time = std::chrono::minutes(10);
  // Authenticates the caller of each call; null: every call is served. Outlives the service.
  AccessControl* access = nullptr;
  // Limits the headers of each call; null: no limit. Outlives the service.
  HeaderLimit* headers = nullptr;
  // Adds facts about the process that the router does not know to the answer of GetStatus.
  // Thread-safe.
  std::function<void(v1::GetStatusResponse&)> add_process;
};

// The service's base takes the bytes of requests: if a string is not UTF-8, protobuf refuses to
// parse it and gRPC answers with UNIMPLEMENTED alone, whereas this service names the field.
using InferenceServiceBase = v1::Inference::WithRawCallbackMethod_Generate<
    v1::Inference::WithRawCallbackMethod_Tokenize<v1::Inference::WithRawCallbackMethod_Explain<
        v1::Inference::WithCallbackMethod_GetStatus<v1::Inference::Service>>>>;

// What clients call: parses, hands over to the router, maps errors.
class InferenceService final : public InferenceServiceBase {
 public:
  // All references must outlive this. Constructor and destructor are defined in the .cc file,
  // because gRPC's templates take long to compile wherever a service is constructed.
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
  // Checks the headers of a call and that its caller has the scope for it. Returns the caller if it
  // is known.
  absl::StatusOr<std::optional<Caller>> Admit(const grpc::CallbackServerContext& context,
                                              Scope needed) const;

  Router& router_;
  EventLoop& loop_;
  AnswerBuffers& answers_;
  const InferenceServiceOptions options_;
};

}  // namespace tandem
