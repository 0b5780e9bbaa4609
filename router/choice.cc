#include "router/choice.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

// How long a finished choice waits for the prefill worker's account of the transfer. The decode
// worker has all of the KV by then, so that only a lost worker keeps it waiting.
constexpr std::chrono::seconds kReportTimeout(2);

std::vector<int32_t> ToVector(const google::protobuf::RepeatedField<int32_t>& ids) {
  return {ids.begin(), ids.end()};
}

bool Contains(const std::vector<WorkerId>& ids, const WorkerId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

WorkerEndpoint EndpointOf(const WorkerView& worker) { return {worker.id, worker.address}; }

// What the client is told of a worker's failure: always which worker it was.
absl::Status StatusFor(const WorkerView& worker, const CallEnd& end) {
  const std::string who = fmt::format("{} worker {}", Name(worker.role), worker.id.name);
  const std::string message(end.status.message());
  const absl::StatusCode code = end.status.code();
  if (end.source == CallEnd::Source::kNetwork && code != absl::StatusCode::kDeadlineExceeded &&
      code != absl::StatusCode::kResourceExhausted) {
    return Unavailable("{} ({}) was lost: {}", who, worker.address, message);
  }
  // NOT_FOUND tells the client that its model does not exist; here a reservation has lapsed.
  if (code == absl::StatusCode::kNotFound) return Unavailable("{}: {}", who, message);
  return Annotate(end.status, who);
}

v1::FinishReason ToFinishReason(v1::WorkerFinish::Reason reason) {
  switch (reason) {
    case v1::WorkerFinish::REASON_STOP:
      return v1::FINISH_REASON_STOP;
    case v1::WorkerFinish::REASON_LENGTH:
      return v1::FINISH_REASON_LENGTH;
    default:
      return v1::FINISH_REASON_UNSPECIFIED;
  }
}

}  // namespace

Choice::Choice(const RouterParts& parts, ChoiceSpec spec, ChoiceObserver& observer)
    : parts_(parts),
      spec_(std::move(spec)),
      observer_(observer),
      text_(parts.tokenizer, spec_.stop_strings, ToVector(spec_.sequence.stop_token_ids())) {
  times_.received = spec_.received;
}

Choice::~Choice() { Abandon(); }

void Choice::Abandon() {
  if (ended()) return;
  state_ = State::kEnded;
  LeaveWorkers();
}

void Choice::Decide() {
  state_ = State::kDeciding;
  const RouteQuery query{
      .wanted = spec_.wanted, .prompt_tokens = spec_.sequence.prompt_size(), .excluded = excluded_};
  absl::StatusOr<RouteDecision> decision = parts_.policy.Choose(*parts_.cluster.View(), query);
  if (!decision.ok()) {
    Fail(last_failure_.ok() ? decision.status() : last_failure_);
    return;
  }
  decision_ = *std::move(decision);
  prefill_charge_ = {.sequences = 1, .prompt_tokens = spec_.sequence.prompt_size()};
  parts_.cluster.Charge(decision_.prefill.id, prefill_charge_);
  if (decision_.route == v1::ROUTE_UNIFIED) {
    StartUnified();
    return;
  }
  decode_charge_ = {.sequences = 1};
  parts_.cluster.Charge(decision_.decode.id, decode_charge_);
  StartReserve();
}

void Choice::StartUnified() {
  state_ = State::kUnified;
  v1::GenerateOnWorkerRequest request;
  *request.mutable_sequence() = spec_.sequence;
  prefill_call_ = parts_.workers.Generate(EndpointOf(decision_.prefill), request, spec_.deadline,
                                          PrefillSideHandlers());
}

void Choice::StartReserve() {
  state_ = State::kReserving;
  reserve_started_ = parts_.clock.Now();
  v1::ReserveRequest request;
  request.set_request_id(spec_.sequence.request_id());
  request.set_prompt_tokens(spec_.sequence.prompt_size());
  request.set_max_tokens(spec_.sequence.max_tokens());
  request.set_priority(spec_.sequence.priority());
  request.set_layout_fingerprint(decision_.prefill.layout_fingerprint);
  reserve_call_ =
      parts_.workers.Reserve(EndpointOf(decision_.decode), request, spec_.deadline,
                             [this](const CallEnd& end, const v1::ReserveResponse& response) {
                               OnReserved(end, response);
                             });
}

void Choice::OnReserved(const CallEnd& end, const v1::ReserveResponse& response) {
  reserve_call_.reset();
  times_.reserve += parts_.clock.Now() - reserve_started_;
  if (!end.status.ok()) {
    OnFailure(decision_.decode, end);
    return;
  }
  reserved_ = response.target();
  StartPrefill();
}

void Choice::StartPrefill() {
  state_ = State::kPrefilling;
  v1::PrefillRequest request;
  *request.mutable_sequence() = spec_.sequence;
  *request.mutable_target() = reserved_;
  prefill_call_ = parts_.workers.Prefill(EndpointOf(decision_.prefill), request, spec_.deadline,
                                         PrefillSideHandlers());
}

void Choice::StartDecode(int32_t first_token) {
  state_ = State::kDecoding;
  v1::DecodeRequest request;
  *request.mutable_sequence() = spec_.sequence;
  request.set_reservation_id(reserved_.reservation_id());
  request.set_epoch(reserved_.epoch());
  request.set_first_token(first_token);
  decode_call_ = parts_.workers.Decode(
      EndpointOf(decision_.decode), request, spec_.deadline,
      {.on_event = [this](const v1::WorkerEvent& event) { OnDecodeEvent(event); },
       .on_end = [this](const CallEnd& end) { OnDecodeEnd(end); }});
}

StreamHandlers Choice::PrefillSideHandlers() {
  return {.on_event = [this](const v1::WorkerEvent& event) { OnPrefillSideEvent(event); },
          .on_end = [this](const CallEnd& end) { OnPrefillSideEnd(end); }};
}

void Choice::OnPrefillSideEvent(const v1::WorkerEvent& event) {
  if (event.has_tokens()) {
    const bool first = completion_tokens_ == 0;
    TakeTokens(event.tokens());
    if (ended() || !first || state_ != State::kPrefilling) return;
    const bool last = text_.ended() || completion_tokens_ >= spec_.sequence.max_tokens();
    if (!last) StartDecode(event.tokens().token_ids(0));
    return;
  }
  if (!event.has_finish()) return;
  prefill_reported_ = true;
  kv_ = event.finish().kv();
  if (event.finish().reason() != v1::WorkerFinish::REASON_HANDED_OFF) {
    reason_ = ToFinishReason(event.finish().reason());
  }
}

void Choice::OnPrefillSideEnd(const CallEnd& end) {
  prefill_call_.reset();
  GiveBack(decision_.prefill.id, prefill_charge_);
  if (state_ == State::kDecoding) {
    const bool kv_arrived = completion_tokens_ > 1 || reason_ != v1::FINISH_REASON_UNSPECIFIED;
    prefill_reported_ = true;  // or never will be
    if (!end.status.ok() && !kv_arrived) {
      OnFailure(decision_.prefill, end);
    } else if (decode_call_ == nullptr) {
      Complete();
    }
    return;
  }
  if (!end.status.ok()) {
    OnFailure(decision_.prefill, end);
  } else if (reason_ == v1::FINISH_REASON_UNSPECIFIED || completion_tokens_ == 0) {
    Fail(Internal("{} worker {} ended its stream without a finish", Name(decision_.prefill.role),
                  decision_.prefill.id.name));
  } else {
    Complete();
  }
}

void Choice::OnDecodeEvent(const v1::WorkerEvent& event) {
  if (event.has_tokens()) TakeTokens(event.tokens());
  if (event.has_finish() && !ended()) reason_ = ToFinishReason(event.finish().reason());
}

void Choice::OnDecodeEnd(const CallEnd& end) {
  decode_call_.reset();
  if (!end.status.ok()) {
    OnFailure(decision_.decode, end);
  } else if (reason_ == v1::FINISH_REASON_UNSPECIFIED) {
    Fail(Internal("decode worker {} ended its stream without a finish", decision_.decode.id.name));
  } else {
    reserved_.Clear();
    CompleteOnceReported();
  }
}

void Choice::OnWorkersLost(const std::vector<WorkerId>& lost) {
  const CallEnd end{Unavailable("its lease lapsed"), CallEnd::Source::kNetwork};
  if (prefill_call_ != nullptr && Contains(lost, decision_.prefill.id)) OnPrefillSideEnd(end);
  if (ended() || !Contains(lost, decision_.decode.id)) return;
  if (reserve_call_ != nullptr) {
    OnReserved(end, {});
  } else if (decode_call_ != nullptr || reserved_.reservation_id() != 0) {
    OnDecodeEnd(end);
  }
}

void Choice::TakeTokens(const v1::WorkerTokens& tokens) {
  if (tokens.token_ids().empty()) return;
  times_.last_token = parts_.clock.Now();
  if (completion_tokens_ == 0) TakeFirstToken(tokens);
  v1::Chunk chunk;
  chunk.set_index(spec_.index);
  for (int i = 0; i < tokens.token_ids_size() && !text_.ended(); ++i) {
    chunk.mutable_text()->append(text_.Push(tokens.token_ids(i)));
    chunk.add_token_ids(tokens.token_ids(i));
    if (i < tokens.logprobs_size()) *chunk.add_logprobs() = tokens.logprobs(i);
  }
  completion_tokens_ += chunk.token_ids_size();
  observer_.OnChunk(std::move(chunk));
  if (ended() || text_.matched_stop().empty()) return;
  reason_ = v1::FINISH_REASON_STOP;
  decode_call_.reset();  // its worker need not go on
  if (state_ == State::kDecoding) {
    CompleteOnceReported();
  } else {
    Complete();
  }
}

void Choice::TakeFirstToken(const v1::WorkerTokens& tokens) {
  times_.first_token = times_.last_token;
  prefill_stages_ = tokens.stages();
  WorkerCharge prefilled{.sequences = 0, .prompt_tokens = prefill_charge_.prompt_tokens};
  prefill_charge_.prompt_tokens = 0;
  GiveBack(decision_.prefill.id, prefilled);
}

void Choice::OnFailure(const WorkerView& worker, const CallEnd& end) {
  const absl::Status status = StatusFor(worker, end);
  if (end.source == CallEnd::Source::kNetwork && absl::IsUnavailable(status)) {
    parts_.cluster.Suspect(worker.id);
  }
  if (!MayTryElsewhere(status)) {
    Fail(status);
    return;
  }
  excluded_.push_back(worker.id);
  // A prefill worker that answers UNAVAILABLE has lost its peer: neither pair is worth a retry.
  if (state_ == State::kPrefilling && absl::IsUnavailable(status) &&
      end.source == CallEnd::Source::kWorker) {
    excluded_.push_back(decision_.decode.id);
  }
  spdlog::info("reroute request={} choice={} status=\"{}\"", spec_.sequence.request_id(),
               spec_.index, status.ToString());
  last_failure_ = status;
  LeaveWorkers();
  Decide();
}

bool Choice::MayTryElsewhere(const absl::Status& status) {
  if (completion_tokens_ > 0 || parts_.clock.Now() >= spec_.deadline) return false;
  // Bounded by the number of workers: each is asked once.
  if (absl::IsResourceExhausted(status)) return true;
  return absl::IsUnavailable(status) && retries_left_-- > 0;
}

void Choice::CompleteOnceReported() {
  if (prefill_reported_) {
    Complete();
    return;
  }
  parts_.loop.PostAt(parts_.clock.Now() + kReportTimeout,
                     [this, alive = std::weak_ptr<bool>(alive_)] {
                       if (!alive.expired() && !ended()) Complete();
                     });
}

void Choice::Complete() {
  const std::string held = text_.Flush();
  if (!text_.matched_stop().empty()) reason_ = v1::FINISH_REASON_STOP;
  if (!held.empty()) {
    v1::Chunk chunk;
    chunk.set_index(spec_.index);
    chunk.set_text(held);
    observer_.OnChunk(std::move(chunk));
    if (ended()) return;
  }
  state_ = State::kEnded;
  LeaveWorkers();
  observer_.OnChoiceFinished(MakeFinish());
}

void Choice::Fail(const absl::Status& status) {
  state_ = State::kEnded;
  LeaveWorkers();
  observer_.OnChoiceFailed(status);
}

v1::ChoiceFinish Choice::MakeFinish() {
  v1::ChoiceFinish finish;
  finish.set_index(spec_.index);
  finish.set_reason(reason_);
  finish.set_stop(text_.matched_stop());
  finish.set_route(decision_.route);
  finish.set_completion_tokens(completion_tokens_);
  *finish.mutable_stages() = SplitTtft(times_, prefill_stages_);
  finish.set_tpot_ms(TimePerOutputTokenMs(times_, completion_tokens_));
  finish.set_e2e_ms(ToMilliseconds(parts_.clock.Now() - times_.received));
  finish.set_prefill_worker(decision_.prefill.id.name);
  const bool moved = decision_.route == v1::ROUTE_DISAGGREGATED;
  finish.set_decode_worker(moved ? decision_.decode.id.name : decision_.prefill.id.name);
  if (moved) {
    v1::KvBytes& kv = *finish.mutable_kv_bytes();
    kv.set_raw(kv_.raw_bytes());
    kv.set_wire(kv_.wire_bytes());
    kv.set_transfer_ms(static_cast<double>(kv_.duration_us()) / 1e3);
    kv.set_exposed_ms(static_cast<double>(kv_.exposed_us()) / 1e3);
  }
  return finish;
}

void Choice::LeaveWorkers() {
  reserve_call_.reset();
  prefill_call_.reset();
  decode_call_.reset();
  if (reserved_.reservation_id() != 0) {
    v1::ReleaseRequest request;
    request.set_reservation_id(reserved_.reservation_id());
    request.set_epoch(reserved_.epoch());
    parts_.workers.Release(EndpointOf(decision_.decode), request);
    reserved_.Clear();
  }
  GiveBack(decision_.prefill.id, prefill_charge_);
  GiveBack(decision_.decode.id, decode_charge_);
}

void Choice::GiveBack(const WorkerId& id, WorkerCharge& charge) {
  if (charge.sequences == 0 && charge.prompt_tokens == 0) return;
  parts_.cluster.Discharge(id, charge);
  charge = {};
}

}  // namespace tandem
