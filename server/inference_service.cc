#include "server/inference_service.h"

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "router/grpc_worker_client.h"
#include "router/retry_metadata.h"
#include "server/deadline.h"
#include "server/parse_message.h"
#include "server/status_mapping.h"
#include "server/write_stream.h"

namespace tandem {
namespace {

grpc::ByteBuffer Serialize(const google::protobuf::Message& message) {
  const std::string bytes = message.SerializeAsString();
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

absl::StatusOr<std::string> Flatten(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  if (!buffer.Dump(&slices).ok()) return Internal("the request's bytes could not be read");
  std::string bytes;
  bytes.reserve(buffer.Length());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

absl::Status Parse(const grpc::ByteBuffer& buffer, google::protobuf::Message& message) {
  ASSIGN_OR_RETURN(const std::string bytes, Flatten(buffer));
  return ParseMessage(bytes, message);
}

// A call that may still be cancelled after its stream's end was asked for. Emptied when gRPC frees
// the call.
class LateCancel {
 public:
  explicit LateCancel(grpc::CallbackServerContext& context) : context_(&context) {}
  void Cancel() {
    absl::MutexLock lock(&mutex_);
    if (context_ != nullptr) context_->TryCancel();
  }
  void Forget() {
    absl::MutexLock lock(&mutex_);
    context_ = nullptr;
  }

 private:
  absl::Mutex mutex_;  // held across TryCancel, which never blocks and calls nobody back
  grpc::CallbackServerContext* context_ ABSL_GUARDED_BY(mutex_);
};

class GenerateStream final : public WriteStream<grpc::ByteBuffer>, public ResponseStream {
 public:
  GenerateStream(grpc::CallbackServerContext& context, Router& router, EventLoop& loop,
                 const InferenceServiceOptions& options)
      : WriteStream(options.max_queued_bytes),
        context_(context),
        deadline_(DeadlineOf(context)),
        router_(router),
        loop_(loop),
        grace_(options.slow_reader_grace),
        late_cancel_(std::make_shared<LateCancel>(context)) {
    context.AddTrailingMetadata(kOriginKey, kOriginRouter);
  }

  void Start(const grpc::ByteBuffer& bytes) {
    v1::GenerateRequest request;
    if (absl::Status status = Parse(bytes, request); !status.ok()) {
      Close(ToGrpcStatus(status));
      return;
    }
    absl::StatusOr<RequestId> id = router_.Submit(request, deadline_, *this);
    if (id.ok()) {
      id_ = *id;
    } else {
      SendRetryAfter(context_, id.status());
      Close(ToGrpcStatus(id.status()));
    }
  }

  bool Send(const v1::GenerateResponse& response, Pace pace) override {
    grpc::ByteBuffer bytes = Serialize(response);
    const size_t size = bytes.Length();
    if (pace == Pace::kLive) return Push(std::move(bytes), size);
    PushAlways(std::move(bytes), size);
    return true;
  }

  void End(const absl::Status& status) override {
    if (status.ok()) {
      Close(grpc::Status::OK);
      return;
    }
    if (absl::IsResourceExhausted(status)) {
      loop_.PostAt(std::chrono::steady_clock::now() + grace_,
                   [cancel = late_cancel_] { cancel->Cancel(); });
    }
    SendRetryAfter(context_, status);
    Abort(ToGrpcStatus(status));  // last: afterwards this may be gone
  }

  void OnCancel() override {
    const bool late = std::chrono::steady_clock::now() >= deadline_;
    router_.Cancel(id_, late ? DeadlineExceeded("the request's deadline passed")
                             : Cancelled("the client went away"));
  }

  void OnDone() override {
    late_cancel_->Forget();
    WriteStream::OnDone();
  }

 private:
  grpc::CallbackServerContext& context_;
  const TimePoint deadline_;
  Router& router_;
  EventLoop& loop_;
  const Duration grace_;
  const std::shared_ptr<LateCancel> late_cancel_;
  RequestId id_;
};

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  auto* stream = new GenerateStream(*context, router_, loop_, options_);
  stream->Start(*request);
  return stream;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  v1::TokenizeRequest request;
  if (absl::Status status = Parse(*bytes, request); !status.ok()) return Answer(*context, status);
  const auto ids = router_.Tokenize(request);
  if (!ids.ok()) return Answer(*context, ids.status());
  v1::TokenizeResponse answer;
  answer.mutable_token_ids()->Add(ids->begin(), ids->end());
  *response = Serialize(answer);
  return Answer(*context, absl::OkStatus());
}

grpc::ServerUnaryReactor* InferenceService::GetStatus(grpc::CallbackServerContext* context,
                                                      const v1::GetStatusRequest*,
                                                      v1::GetStatusResponse* response) {
  *response = router_.Status();
  return Answer(*context, absl::OkStatus());
}

}  // namespace tandem
