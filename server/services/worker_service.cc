#include "server/services/worker_service.h"

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "base/status.h"
#include "router/client/grpc_worker_client.h"
#include "router/client/retry_metadata.h"
#include "server/services/deadline.h"
#include "server/services/status_mapping.h"
#include "server/services/traced_call.h"
#include "server/services/worker_messages.h"
#include "server/services/write_stream.h"

namespace tandem {
namespace {

// The limit on what is queued for one router. A router reads fast, and a request's output is
// bounded by its max_tokens, so this only limits the memory that a hanging router can take.
constexpr size_t kMaxQueuedBytes = 64 << 20;

class EventStream final : public WriteStream<v1::WorkerEvent> {
 public:
  EventStream(grpc::CallbackServerContext& context, Engine& engine, RequestId id)
      : WriteStream(kMaxQueuedBytes), context_(context), engine_(engine), id_(id) {}

  void OnCancel() override { engine_.Cancel(id_, Cancelled("the router ended the call")); }

  // Ends the stream with an error and without a finish. Neither Fail nor Close nor a push may be
  // called afterwards, nor Fail after Close.
  void Fail(const absl::Status& status) {
    SendRetryAfter(context_, status);
    Abort(ToGrpcStatus(status));
  }

 private:
  grpc::CallbackServerContext& context_;
  Engine& engine_;
  const RequestId id_;
};

// Sends the output of a request to its router's stream. The engine ends every request with one
// OnFinish, until which the stream lives.
class StreamSink final : public TokenSink {
 public:
  StreamSink(EventStream& stream, LogprobsWanted logprobs, const std::function<void()>& finished)
      : stream_(stream), logprobs_(logprobs), finished_(finished) {}

  void OnTokens(int32_t index, std::span<const SampledToken> tokens,
                const StageTimes& stages) override {
    v1::WorkerEvent event;
    *event.mutable_tokens() = ToWorkerTokens(tokens, logprobs_);
    event.mutable_tokens()->set_index(index);
    *event.mutable_tokens()->mutable_stages() = ToProto(stages);
    Push(std::move(event));
  }

  void OnPromptLogprobs(int32_t first, std::span<const SampledToken> tokens) override {
    v1::WorkerEvent event;
    *event.mutable_prompt_logprobs() = ToPromptLogprobs(first, tokens);
    Push(std::move(event));
  }

  void OnBeamStart(const SampledToken& first, const StageTimes& stages) override {
    v1::WorkerEvent event;
    *event.mutable_beam_start()->mutable_first() = ToTokenLogprobs(first);
    *event.mutable_beam_start()->mutable_stages() = ToProto(stages);
    Push(std::move(event));
  }

  void OnChoiceEnd(const ChoiceEnd& end) override {
    v1::WorkerEvent event;
    *event.mutable_choice_finish() = ToProto(end);
    Push(std::move(event));
  }

  void OnFinish(const FinishInfo& info) override {
    if (info.status.ok()) {
      v1::WorkerEvent event;
      *event.mutable_finish() = ToProto(info);
      Push(std::move(event));
    }
    const absl::Status status = info.status.ok() ? overflow_ : info.status;
    if (status.ok()) {
      stream_.Close(grpc::Status::OK);
    } else {
      stream_.Fail(status);
    }
    finished_();
  }

 private:
  void Push(v1::WorkerEvent event) {
    const size_t bytes = event.ByteSizeLong();
    if (overflow_.ok() && !stream_.Push(std::move(event), bytes)) {
      overflow_ = ResourceExhausted("the router reads too slowly: {} bytes wait", kMaxQueuedBytes);
    }
  }

  EventStream& stream_;
  const LogprobsWanted logprobs_;
  const std::function<void()>& finished_;
  absl::Status overflow_;
};

// A call of Reserve, which waits for room in the KV pool for as long as its caller does.
class ReserveCall final : public grpc::ServerUnaryReactor {
 public:
  ReserveCall(Engine& engine, const grpc::CallbackServerContext& context)
      : engine_(engine), context_(context) {}

  // `done` must finish the call. It may do so at once, because gRPC keeps this object alive until
  // the service's method has returned it.
  void Start(const ReserveRequest& request, std::function<void(absl::StatusOr<Reservation>)> done) {
    ticket_ = engine_.Reserve(request, std::move(done)).value();
    if (context_.IsCancelled()) OnCancel();
  }

  // While Start does not have the ticket yet, nothing is done here: Start then looks for a
  // cancellation itself.
  void OnCancel() override {
    if (const uint64_t ticket = ticket_; ticket != 0) {
      engine_.CancelReserve(ReserveTicket(ticket));
    }
  }
  void OnDone() override { delete this; }

 private:
  Engine& engine_;
  const grpc::CallbackServerContext& context_;
  std::atomic<uint64_t> ticket_ = 0;
};

std::unique_ptr<StreamSink> NewSink(EventStream& stream, const v1::SequenceRequest& sequence,
                                    const std::function<void()>& finished) {
  const auto logprobs =
      sequence.sampling().has_logprobs() ? LogprobsWanted::kYes : LogprobsWanted::kNo;
  return std::make_unique<StreamSink>(stream, logprobs, finished);
}

// Makes spans of a request's stages where the router records its trace.
std::unique_ptr<TokenSink> Traced(const Tracer* tracer, const grpc::CallbackServerContext& context,
                                  WorkerCallKind kind, std::unique_ptr<TokenSink> sink) {
  return TraceStages(BeginWorkerCall(tracer, context, kind), kind, std::move(sink));
}

void MarkAnswered(grpc::CallbackServerContext& context) {
  context.AddTrailingMetadata(kOriginKey, kOriginWorker);
}

}  // namespace

WorkerService::WorkerService(Engine& engine, std::string data_address,
                             std::function<void()> load_changed, const Tracer* tracer)
    : engine_(engine),
      data_address_(std::move(data_address)),
      load_changed_(std::move(load_changed)),
      tracer_(tracer) {}

WorkerService::~WorkerService() = default;

absl::Status WorkerService::CheckMeant(Role role, uint64_t epoch) const {
  const EngineOptions& self = engine_.options();
  if (self.role != role) {
    return FailedPrecondition("this is a {} worker; the call needs a {} worker",
                              Name(ToProto(self.role)), Name(ToProto(role)));
  }
  if (self.epoch == epoch) return absl::OkStatus();
  // The error does not name the right epoch: whoever knows it may give this worker orders.
  return NotFound("the call is meant for another process of this worker's name");
}

grpc::ServerWriteReactor<v1::WorkerEvent>* WorkerService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateOnWorkerRequest* request) {
  MarkAnswered(*context);
  const v1::SequenceRequest& sequence = request->sequence();
  auto* stream = new EventStream(*context, engine_, RequestId(sequence.request_id()));
  if (absl::Status status = CheckMeant(Role::kUnified, request->epoch()); !status.ok()) {
    stream->Fail(status);
    return stream;
  }
  engine_.Submit(ToEngineRequest(*request, DeadlineOf(*context)),
                 Traced(tracer_, *context, WorkerCallKind::kGenerate,
                        NewSink(*stream, sequence, load_changed_)));
  return stream;
}

grpc::ServerWriteReactor<v1::WorkerEvent>* WorkerService::Prefill(
    grpc::CallbackServerContext* context, const v1::PrefillRequest* request) {
  MarkAnswered(*context);
  const v1::SequenceRequest& sequence = request->sequence();
  auto* stream = new EventStream(*context, engine_, RequestId(sequence.request_id()));
  absl::Status status = CheckMeant(Role::kPrefill, request->epoch());
  const absl::StatusOr<HandoffTarget> target = ToHandoffTarget(*request);
  status.Update(target.status());
  if (!status.ok()) {
    stream->Fail(status);
    return stream;
  }
  engine_.SubmitPrefill(ToEngineRequest(sequence, DeadlineOf(*context)), *target,
                        Traced(tracer_, *context, WorkerCallKind::kPrefill,
                               NewSink(*stream, sequence, load_changed_)));
  return stream;
}

grpc::ServerWriteReactor<v1::WorkerEvent>* WorkerService::Decode(
    grpc::CallbackServerContext* context, const v1::DecodeRequest* request) {
  MarkAnswered(*context);
  const v1::SequenceRequest& sequence = request->sequence();
  auto* stream = new EventStream(*context, engine_, RequestId(sequence.request_id()));
  if (absl::Status status = CheckMeant(Role::kDecode, request->epoch()); !status.ok()) {
    stream->Fail(status);
    return stream;
  }
  engine_.SubmitDecode(ToDecodeRequest(*request, DeadlineOf(*context)),
                       Traced(tracer_, *context, WorkerCallKind::kDecode,
                              NewSink(*stream, sequence, load_changed_)));
  return stream;
}

grpc::ServerUnaryReactor* WorkerService::Reserve(grpc::CallbackServerContext* context,
                                                 const v1::ReserveRequest* request,
                                                 v1::ReserveResponse* response) {
  MarkAnswered(*context);
  if (absl::Status status = CheckMeant(Role::kDecode, request->epoch()); !status.ok()) {
    return Answer(*context, status);
  }
  const absl::StatusOr<ReserveRequest> wanted = ToReserveRequest(*request, DeadlineOf(*context));
  if (!wanted.ok()) return Answer(*context, wanted.status());
  auto* call = new ReserveCall(engine_, *context);
  const TracePoint trace = BeginWorkerCall(tracer_, *context, WorkerCallKind::kReserve);
  call->Start(*wanted, [this, context, response, call, trace](absl::StatusOr<Reservation> got) {
    if (got.ok()) trace.Set("tandem.queued_ms", ToMilliseconds(got->queued));
    EndWorkerCall(trace, got.status());
    if (got.ok()) {
      *response = ToProto(*got, data_address_);
      // If the call is cancelled after this check, the router releases the reservation by its
      // request id.
      if (context->IsCancelled()) engine_.Release(got->id);
    }
    SendRetryAfter(*context, got.status());
    call->Finish(ToGrpcStatus(got.status()));
  });
  return call;
}

grpc::ServerUnaryReactor* WorkerService::Release(grpc::CallbackServerContext* context,
                                                 const v1::ReleaseRequest* request,
                                                 v1::ReleaseResponse*) {
  MarkAnswered(*context);
  const absl::Status status = CheckMeant(Role::kDecode, request->epoch());
  if (status.ok() && request->reservation_id() != 0) {
    engine_.Release(ReservationId(request->reservation_id()));
  } else if (status.ok()) {
    engine_.ReleaseOf(RequestId(request->request_id()));
  }
  load_changed_();
  return Answer(*context, status);
}

grpc::ServerUnaryReactor* WorkerService::EndChoice(grpc::CallbackServerContext* context,
                                                   const v1::EndChoiceRequest* request,
                                                   v1::EndChoiceResponse*) {
  MarkAnswered(*context);
  engine_.EndChoice(RequestId(request->request_id()), request->index());
  return Answer(*context, absl::OkStatus());
}

}  // namespace tandem
