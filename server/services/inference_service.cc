#include "server/services/inference_service.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "router/client/grpc_worker_client.h"
#include "router/client/retry_metadata.h"
#include "router/client/trace_metadata.h"
#include "server/access/grpc_access.h"
#include "server/services/deadline.h"
#include "server/services/message_limit.h"
#include "server/services/parse_message.h"
#include "server/services/status_mapping.h"
#include "server/services/write_stream.h"

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

absl::Status Parse(const grpc::ByteBuffer& buffer, size_t max_bytes,
                   google::protobuf::Message& message) {
  if (buffer.Length() > max_bytes) {
    return RequestTooLarge(buffer.Length(), max_bytes);
  }
  ASSIGN_OR_RETURN(const std::string bytes, Flatten(buffer));
  return ParseMessage(bytes, message);
}

// Cancels a call whose stream has been asked to end, if its client does not read the rest. It
// forgets the call when gRPC frees it.
class LateCancel {
 public:
  explicit LateCancel(grpc::CallbackServerContext& context) : context_(&context) {}
  // Cancels the call. False when it has ended already.
  bool Cancel() {
    absl::MutexLock lock(&mutex_);
    if (context_ == nullptr) return false;
    context_->TryCancel();
    return true;
  }
  bool IsOver() {
    absl::MutexLock lock(&mutex_);
    return context_ == nullptr;
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
                 AnswerBuffers& answers, const InferenceServiceOptions& options)
      : WriteStream(options.max_queued_bytes, &answers),
        context_(context),
        deadline_(DeadlineOf(context)),
        router_(router),
        loop_(loop),
        answers_(answers),
        max_message_bytes_(options.max_message_bytes),
        grace_(options.slow_reader_grace),
        max_reading_time_(options.max_reading_time),
        late_cancel_(std::make_shared<LateCancel>(context)) {
    context.AddTrailingMetadata(kOriginKey, kOriginRouter);
  }

  void Start(const grpc::ByteBuffer& bytes, const std::optional<Caller>& caller) {
    v1::GenerateRequest request;
    if (absl::Status status = Parse(bytes, max_message_bytes_, request); !status.ok()) {
      Close(ToGrpcStatus(status));
      return;
    }
    if (caller) request.set_tenant(caller->tenant);
    absl::StatusOr<RequestId> id =
        router_.Submit(std::move(request), deadline_, *this, TraceContextOf(context_));
    if (id.ok()) {
      id_ = *id;
    } else {
      SendRetryAfter(context_, id.status());
      Close(ToGrpcStatus(id.status()));
    }
  }

  bool Send(const v1::GenerateResponse& response, Pace pace) override {
    const grpc::ByteBuffer bytes = Serialize(response);  // copies share the bytes
    if (pace == Pace::kLive) return Push(bytes, bytes.Length());
    return PushWhole(bytes, bytes.Length());
  }

  void End(const absl::Status& status) override {
    if (status.ok()) {
      if (HasUnwritten()) EndUnlessRead();
      Close(grpc::Status::OK);
      return;
    }
    if (absl::IsResourceExhausted(status)) {
      loop_.PostAt(std::chrono::steady_clock::now() + grace_,
                   [cancel = late_cancel_] { (void)cancel->Cancel(); });
    }
    SendRetryAfter(context_, status);
    Abort(ToGrpcStatus(status));  // to be called last: it may destroy this
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
  // Cancels the call unless the client reads the rest of its answer, which takes memory, in time.
  // Nearly all clients have read it within a second; the first timer is that short, so that few
  // calls need the long one.
  void EndUnlessRead() {
    const TimePoint now = std::chrono::steady_clock::now();
    const TimePoint until = std::min(deadline_, now + max_reading_time_);
    const auto end = [cancel = late_cancel_, &answers = answers_] {
      if (cancel->Cancel()) answers.CountUnread();
    };
    const auto look = [cancel = late_cancel_, end, until, &loop = loop_] {
      if (!cancel->IsOver()) loop.PostAt(until, end);
    };
    loop_.PostAt(std::min(until, now + std::chrono::seconds(1)), look);
  }

  grpc::CallbackServerContext& context_;
  const TimePoint deadline_;
  Router& router_;
  EventLoop& loop_;
  AnswerBuffers& answers_;
  const size_t max_message_bytes_;
  const Duration grace_;
  const Duration max_reading_time_;
  const std::shared_ptr<LateCancel> late_cancel_;
  RequestId id_;
};

}  // namespace

InferenceService::InferenceService(Router& router, EventLoop& loop, AnswerBuffers& answers,
                                   InferenceServiceOptions options)
    : router_(router), loop_(loop), answers_(answers), options_(std::move(options)) {}

InferenceService::~InferenceService() = default;

absl::StatusOr<std::optional<Caller>> InferenceService::Admit(
    const grpc::CallbackServerContext& context, Scope needed) const {
  if (options_.headers != nullptr) RETURN_IF_ERROR(options_.headers->Check(context));
  return CheckCall(context, options_.access, needed);
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* InferenceService::Generate(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  auto* stream = new GenerateStream(*context, router_, loop_, answers_, options_);
  const auto caller = Admit(*context, Scope::kGenerate);
  if (caller.ok()) {
    stream->Start(*request, *caller);
  } else {
    stream->Close(ToGrpcStatus(caller.status()));
  }
  return stream;
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* bytes,
                                                     grpc::ByteBuffer* response) {
  if (const auto caller = Admit(*context, Scope::kGenerate); !caller.ok()) {
    return Answer(*context, caller.status());
  }
  v1::TokenizeRequest request;
  if (absl::Status status = Parse(*bytes, options_.max_message_bytes, request); !status.ok()) {
    return Answer(*context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // The call, and with it `context` and the response, lives until Finish.
  router_.Tokenize(
      TokenizeWork(std::move(request)), [context] { return context->IsCancelled(); },
      [context, response, reactor](const absl::StatusOr<std::vector<int32_t>>& ids) {
        if (ids.ok()) {
          v1::TokenizeResponse answer;
          answer.mutable_token_ids()->Add(ids->begin(), ids->end());
          *response = Serialize(answer);
        } else {
          SendRetryAfter(*context, ids.status());
        }
        reactor->Finish(ToGrpcStatus(ids.status()));
      });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::Explain(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* response) {
  if (const auto caller = Admit(*context, Scope::kAdmin); !caller.ok()) {
    return Answer(*context, caller.status());
  }
  v1::ExplainRequest request;
  if (absl::Status status = Parse(*bytes, options_.max_message_bytes, request); !status.ok()) {
    return Answer(*context, status);
  }
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  // The call, and with it `context` and the response, lives until Finish.
  router_.Explain(std::move(request),
                  [context, response, reactor](const absl::StatusOr<v1::ExplainResponse>& answer) {
                    if (answer.ok()) {
                      *response = Serialize(*answer);
                    } else {
                      SendRetryAfter(*context, answer.status());
                    }
                    reactor->Finish(ToGrpcStatus(answer.status()));
                  });
  return reactor;
}

grpc::ServerUnaryReactor* InferenceService::GetStatus(grpc::CallbackServerContext* context,
                                                      const v1::GetStatusRequest*,
                                                      v1::GetStatusResponse* response) {
  const auto caller = Admit(*context, Scope::kGenerate);
  if (!caller.ok()) return Answer(*context, caller.status());
  *response = router_.Status();
  // A tenant may not see what other tenants use; only an admin may.
  if (*caller && !(*caller)->is_admin) response->mutable_admission()->clear_tenants();
  if (options_.add_process) options_.add_process(*response);
  return Answer(*context, absl::OkStatus());
}

}  // namespace tandem
