#include "router/attempt/attempt.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

bool Contains(const std::vector<WorkerId>& ids, const WorkerRef& worker) {
  return std::find(ids.begin(), ids.end(), worker.id) != ids.end();
}

bool Contains(const std::vector<WorkerId>& ids, const std::optional<WorkerRef>& worker) {
  return worker && Contains(ids, *worker);
}

RequestPart PartOf(RequestPart::Kind kind, const RequestSpec& spec, const ExpectedWork& expected) {
  return {.kind = kind,
          .sequences = spec.width(),
          .prompt_tokens = expected.prompt_tokens,
          .output_tokens = expected.output_tokens,
          .most_output_tokens = expected.most_output_tokens};
}

CallOptions OptionsOf(const AttemptParts& parts, const RequestSpec& spec) {
  return {.deadline = spec.deadline, .trace = parts.trace};
}

// Records the span of a hand-off, which ends now: the prefill worker has just reported that the
// decode worker has the KV, and how long that took.
void TraceHandoff(const AttemptParts& parts, const v1::KvReport& kv) {
  if (!parts.trace.records() || kv.duration_us() == 0) return;
  const TimePoint now = parts.clock.Now();
  const TracePoint span = parts.trace.Begin("hand_off", SpanKind::kInternal,
                                            now - std::chrono::microseconds(kv.duration_us()));
  span.Set("tandem.kv.bytes", static_cast<int64_t>(kv.raw_bytes()));
  span.Set("tandem.kv.wire_bytes", static_cast<int64_t>(kv.wire_bytes()));
  span.Set("tandem.kv.codec", kv.codec());
  span.Set("tandem.kv.exposed_ms", static_cast<double>(kv.exposed_us()) / 1e3);
  span.End(now);
}

}  // namespace

Attempt::Attempt(const AttemptParts& parts, const RequestSpec& spec, OutputRelay& relay,
                 AttemptOwner& owner, AttemptWorkers workers, const ExpectedWork& expected,
                 uint64_t number)
    : parts_(parts),
      spec_(spec),
      relay_(relay),
      owner_(owner),
      workers_(std::move(workers)),
      expected_(expected),
      requests_(spec, workers_, number),
      choices_(spec.sequence.n()) {}

// From here on the client gets the tokens of this attempt.
void Attempt::Begin() {
  continues_ = relay_.output().any() && !spec_.has_beams();
  relay_.output().ExpectFromStart();
  prefill_.claim = PrefixClaim(parts_.prefixes, workers_.prefill, spec_.prompt_hashes);
  const auto kind = workers_.decode ? RequestPart::Kind::kPrefill : RequestPart::Kind::kUnified;
  RequestPart part = PartOf(kind, spec_, expected_);
  part.cached_tokens = prefill_.claim.predicted_tokens();
  prefill_.charge = LoadCharge(parts_.cluster, parts_.ledger, workers_.prefill.id, part);
}

void Attempt::Generate() {
  Begin();
  stage_ = AttemptStage::kUnified;
  reports_.accounted = true;  // no KV moves
  prefill_.call =
      parts_.workers.Generate(EndpointOf(workers_.prefill), requests_.Generate(TakeContinued()),
                              OptionsOf(parts_, spec_), PrefillHandlers());
}

void Attempt::Reserve(ReserveMode mode) {
  const bool is_ahead = mode == ReserveMode::kAhead;
  if (!is_ahead) Begin();
  stage_ = is_ahead ? AttemptStage::kReservingAhead : AttemptStage::kReserving;
  const WorkerRef& decode = *workers_.decode;
  reservation_.charge = LoadCharge(parts_.cluster, parts_.ledger, decode.id,
                                   PartOf(RequestPart::Kind::kDecode, spec_, expected_));
  reservation_.asked = parts_.clock.Now();
  reservation_.mode = mode;
  v1::ReserveRequest request = requests_.Reserve();
  request.set_at_once(mode == ReserveMode::kRefuse);
  reservation_.call =
      parts_.workers.Reserve(EndpointOf(decode), request, OptionsOf(parts_, spec_),
                             [this](const CallEnd& end, const v1::ReserveResponse& response) {
                               OnReserved(end, response);
                             });
}

void Attempt::OnReserved(const CallEnd& end, const v1::ReserveResponse& response) {
  reservation_.call.reset();
  const Duration took = parts_.clock.Now() - reservation_.asked;
  // A refusal does not say how long the request was queued. Where it was allowed to queue, it did
  // so for all of the time.
  const bool queued_in_vain =
      absl::IsResourceExhausted(end.status) && reservation_.mode != ReserveMode::kRefuse;
  const Duration queued =
      queued_in_vain ? took : Duration(std::chrono::microseconds(response.queued_us()));
  if (stage_ == AttemptStage::kReserving && !relay_.output().any()) {
    reports_.reserve = {.asking = took - queued, .waiting = queued};
  }
  if (!end.status.ok()) return Fail(*workers_.decode, end);
  reservation_.target = response.target();
  owner_.OnReserved(*this);
}

void Attempt::Prefill() {
  if (stage_ == AttemptStage::kReservingAhead) Begin();
  stage_ = AttemptStage::kPrefilling;
  prefill_.charge.Send();
  v1::PrefillRequest request = requests_.Prefill(reservation_.target);
  // A client that has a token has the log-probabilities of the prompt already.
  if (continues_) request.mutable_sequence()->clear_prompt_logprobs();
  prefill_.call = parts_.workers.Prefill(EndpointOf(workers_.prefill), request,
                                         OptionsOf(parts_, spec_), PrefillHandlers());
}

void Attempt::Decode() {
  stage_ = AttemptStage::kDecoding;
  std::vector<v1::TokenLogprobs> first_tokens;
  if (beam_start_) {
    first_tokens.push_back(beam_start_->first());
  } else {
    for (Choice& choice : choices_) first_tokens.push_back(std::move(choice.first_token));
  }
  const v1::DecodeRequest request =
      requests_.Decode(reservation_.target, std::move(first_tokens), TakeContinued());
  decode_call_ = parts_.workers.Decode(
      EndpointOf(*workers_.decode), request, OptionsOf(parts_, spec_),
      {.on_event = [this](const v1::WorkerEvent& event) { OnDecodeEvent(event); },
       .on_end = [this](const CallEnd& end) { OnDecodeEnd(end); }});
}

const StreamedOutput* Attempt::TakeContinued() {
  if (!continues_) return nullptr;
  relay_.output().ExpectAfterEmitted();
  return &relay_.output();
}

// Tells the worker that generates a choice to end it. On the disaggregated route the prefill worker
// has sent its one token already, and the decode worker may not know of the request yet, so it gets
// the end only once it has sent a token of the choice.
void Attempt::EndChoice(int32_t index) {
  const bool runs = stage_ == AttemptStage::kUnified || stage_ == AttemptStage::kDecoding;
  if (!runs || std::exchange(choices_[index].end_sent, true)) return;
  parts_.workers.EndChoice(EndpointOf(workers_.output()), requests_.EndChoice(index));
}

StreamHandlers Attempt::PrefillHandlers() {
  return {.on_event = [this](const v1::WorkerEvent& event) { OnPrefillEvent(event); },
          .on_end = [this](const CallEnd& end) { (void)OnPrefillEnd(end); }};
}

void Attempt::OnPrefillEvent(const v1::WorkerEvent& event) {
  reports_.heard = true;
  absl::Status status;
  switch (event.event_case()) {
    case v1::WorkerEvent::kTokens:
      prefill_.charge.AddTokens(event.tokens().token_ids_size());
      prefill_.claim.OnComputed();
      status = relay_.OnTokens(workers_, workers_.prefill, event.tokens(), event.tokens().stages());
      if (!status.ok()) return owner_.OnAttemptBroken(status);
      if (stage_ == AttemptStage::kPrefilling) KeepFirstToken(event.tokens());
      return;
    case v1::WorkerEvent::kBeamStart:
      prefill_.charge.AddTokens(1);
      prefill_.claim.OnComputed();
      if (stage_ != AttemptStage::kPrefilling) return;
      beam_start_ = event.beam_start();
      return Decode();
    case v1::WorkerEvent::kChoiceFinish:
      prefill_.charge.EndSequence();
      status = relay_.OnChoiceEnded(workers_.prefill, event.choice_finish());
      if (!status.ok()) owner_.OnAttemptBroken(status);
      return;
    case v1::WorkerEvent::kPromptLogprobs:
      status = relay_.OnPromptLogprobs(workers_.prefill, event.prompt_logprobs());
      if (!status.ok()) owner_.OnAttemptBroken(status);
      return;
    case v1::WorkerEvent::kFinish:
      reports_.prefill_finished = true;
      reports_.kv = event.finish().kv();
      reports_.cached_tokens = event.finish().cached_tokens();
      reports_.evicted_tokens = event.finish().evicted_tokens();
      prefill_.claim.Record(reports_.cached_tokens);
      reports_.preemptions += event.finish().preemptions();
      TraceHandoff(parts_, reports_.kv);
      return SetAccounted();
    case v1::WorkerEvent::EVENT_NOT_SET:
      return;
  }
}

bool Attempt::OnPrefillEnd(const CallEnd& end) {
  prefill_.call.reset();
  prefill_.charge.Reset();
  prefill_.claim.Reset();
  // The error of a prefill worker matters until its KV has arrived: without the KV the decode
  // worker waits in vain.
  const bool matters = stage_ != AttemptStage::kDecoding || !reports_.kv_arrived;
  if (!end.status.ok() && matters) {
    Fail(workers_.prefill, end);
    return false;
  }
  if (stage_ == AttemptStage::kDecoding) {
    SetAccounted();
    if (stage_ == AttemptStage::kStopped) return false;
    if (decode_call_ != nullptr) return true;
  } else if (!reports_.prefill_finished) {
    owner_.OnAttemptBroken(
        Internal("{} ended its stream without a finish", RoleAndName(workers_.prefill)));
    return false;
  }
  owner_.OnAttemptFinished();
  return false;
}

void Attempt::OnDecodeEvent(const v1::WorkerEvent& event) {
  reports_.heard = true;
  reports_.kv_arrived = true;
  absl::Status status;
  if (event.has_tokens()) {
    reservation_.charge.AddTokens(event.tokens().token_ids_size());
    status = relay_.OnTokens(workers_, *workers_.decode, event.tokens(),
                             beam_start_ ? beam_start_->stages() : event.tokens().stages());
  } else if (event.has_choice_finish()) {
    reservation_.charge.EndSequence();
    status = relay_.OnChoiceEnded(*workers_.decode, event.choice_finish());
  } else if (event.has_finish()) {
    reports_.decode_finished = true;
    reports_.kv_hidden_bytes = event.finish().kv().hidden_bytes();
    reports_.preemptions += event.finish().preemptions();
  }
  if (!status.ok()) owner_.OnAttemptBroken(status);
}

void Attempt::OnDecodeEnd(const CallEnd& end) {
  decode_call_.reset();
  if (!end.status.ok()) return Fail(*workers_.decode, end);
  if (!reports_.decode_finished) {
    return owner_.OnAttemptBroken(
        Internal("{} ended its stream without a finish", RoleAndName(*workers_.decode)));
  }
  reservation_.target.Clear();
  if (reports_.accounted) owner_.OnAttemptFinished();
}

void Attempt::KeepFirstToken(const v1::WorkerTokens& tokens) {
  if (spec_.has_beams() || tokens.token_ids().empty()) return;
  v1::TokenLogprobs& first = choices_[tokens.index()].first_token;
  if (tokens.logprobs_size() > 0) first = tokens.logprobs(0);
  first.mutable_sampled()->set_token_id(tokens.token_ids(0));
  const bool all = std::all_of(choices_.begin(), choices_.end(), [](const Choice& choice) {
    return choice.first_token.has_sampled();
  });
  if (all && relay_.NeedsDecode()) Decode();
}

void Attempt::SetAccounted() {
  if (reports_.accounted || stage_ == AttemptStage::kStopped) return;
  reports_.accounted = true;
  relay_.OnAccounted();
}

void Attempt::OnWorkersLost(const std::vector<WorkerId>& lost, const CallEnd& end) {
  if (stage_ == AttemptStage::kStopped) return;
  if (Contains(lost, workers_.prefill)) {
    // A prefill worker is called only once blocks are reserved, so until then no call would report
    // its loss.
    if (stage_ == AttemptStage::kReserving) return Fail(workers_.prefill, end);
    if (prefill_.call != nullptr && !OnPrefillEnd(end)) return;
  }
  if (!Contains(lost, workers_.decode)) return;
  if (reservation_.call != nullptr) {
    OnReserved(end, {});
  } else if (decode_call_ != nullptr || reservation_.target.reservation_id() != 0) {
    OnDecodeEnd(end);
  }
}

void Attempt::Fail(const WorkerRef& worker, const CallEnd& end) {
  if (parts_.trace.records()) parts_.trace.End(parts_.clock.Now(), end.status);
  const AttemptFailure failure = {.worker = worker,
                                  .end = end,
                                  .stage = stage_,
                                  .workers = workers_,
                                  .heard = reports_.heard,
                                  .kv_arrived = reports_.kv_arrived,
                                  .could_queue = reservation_.mode != ReserveMode::kRefuse};
  owner_.OnAttemptFailed(*this, failure);
}

void Attempt::Stop() {
  stage_ = AttemptStage::kStopped;
  reservation_.call.reset();
  prefill_.call.reset();
  decode_call_.reset();
  if (reservation_.target.reservation_id() != 0) {
    parts_.workers.Release(EndpointOf(*workers_.decode),
                           WorkerRequests::Release(reservation_.target));
  }
  reservation_.target.Clear();
  prefill_.charge.Reset();
  prefill_.claim.Reset();
  reservation_.charge.Reset();
  if (parts_.trace.records()) parts_.trace.End(parts_.clock.Now());
}

void Attempt::LeaveQueue() {
  if (stage_ == AttemptStage::kReserving && !relay_.output().any()) {
    reports_.reserve.waiting += parts_.clock.Now() - reservation_.asked;
  }
  Stop();
}

bool Attempt::DependsOn(const std::vector<WorkerId>& ids) const {
  switch (stage_) {
    case AttemptStage::kUnified:
      return Contains(ids, workers_.prefill);
    case AttemptStage::kReserving:
    case AttemptStage::kReservingAhead:
      return Contains(ids, workers_.prefill) || Contains(ids, workers_.decode);
    case AttemptStage::kPrefilling:
    case AttemptStage::kDecoding:
      return Contains(ids, workers_.decode);
    case AttemptStage::kIdle:
    case AttemptStage::kStopped:
      return false;
  }
  return false;
}

const WorkerId* Attempt::QueuedAt() const {
  if (reports_.heard) return nullptr;
  if (stage_ == AttemptStage::kUnified) return &workers_.prefill.id;
  const bool queues =
      stage_ == AttemptStage::kReserving && reservation_.mode != ReserveMode::kRefuse;
  return queues ? &workers_.decode->id : nullptr;
}

std::vector<WaitingPart> Attempt::WaitingParts() const {
  std::vector<WaitingPart> parts;
  for (const LoadCharge* const one : {&prefill_.charge, &reservation_.charge}) {
    if (one->charge().empty()) continue;
    parts.push_back({.worker = one->worker(), .part = one->part(), .charge = one->charge()});
  }
  return parts;
}

}  // namespace tandem
