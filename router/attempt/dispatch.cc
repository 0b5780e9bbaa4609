#include "router/attempt/dispatch.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/retry_after.h"
#include "base/status.h"

namespace tandem {
namespace {

// Every attempt has its own request id, because the worker may still be cancelling the previous
// attempt.
uint64_t IdOfAttempt(const RequestSpec& spec, uint64_t number) {
  return spec.sequence.request_id() ^ ((number - 1) << 48);
}

}  // namespace

Dispatch::Dispatch(const RouterParts& parts, const RequestSpec& spec, DispatchObserver& observer)
    : parts_(parts),
      spec_(spec),
      observer_(observer),
      last_told_(spec.received),
      told_(spec.sequence),
      told_end_(spec.sequence.n()) {}

void Dispatch::Decide() {
  state_ = State::kDeciding;
  absl::StatusOr<RouteDecision> decision = Choose();
  const bool forgiven = !decision.ok() && ForgiveHaste();
  if (forgiven) decision = Choose();
  if (decision.ok()) {
    if (std::exchange(refused_, false)) {
      parts_.reroutes.Count(KindOf(decision_, *decision), std::string(last_failure_.message()));
    }
    return StartAttempt(*std::move(decision));
  }
  // "Ask another worker" is no answer to a client when there is none to ask.
  if (forgiven) last_failure_ = absl::OkStatus();
  if (resumes_ > 0 || IsWorthWaiting(decision.status())) return WaitForNews(decision.status());
  absl::Status status = last_failure_.ok() ? decision.status() : last_failure_;
  if (absl::IsResourceExhausted(status) && !RetryAfter(status)) {
    const Duration next_report = parts_.cluster.options().heartbeat;
    SetRetryAfter(status, std::chrono::duration_cast<std::chrono::milliseconds>(next_report));
  }
  Fail(status);
}

absl::StatusOr<RouteDecision> Dispatch::Choose() {
  const std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  return parts_.policy.Choose(*view, FirstChoice(*view, Query(*view)));
}

// Those that refused because there was somebody else may be asked once more, who is gone since.
bool Dispatch::ForgiveHaste() {
  return std::erase_if(excluded_, [](const Exclusion& one) { return one.asked_at_once; }) > 0;
}

RouteQuery Dispatch::Query(const ClusterView& view) const {
  RouteQuery query{.wanted = spec_.wanted,
                   .prompt_tokens = spec_.sequence.prompt_size(),
                   .context_tokens = spec_.sequence.prompt_size() + spec_.sequence.max_tokens(),
                   .excluded = {},
                   .begun = begun_,
                   .prompt_at = prompt_at_};
  for (const Exclusion& exclusion : excluded_) {
    if (exclusion.until == Exclusion::Until::kNobodyElse) query.excluded.push_back(exclusion.id);
  }
  const bool somebody_else = HasCandidates(view, query);
  query.excluded.clear();
  for (const Exclusion& exclusion : excluded_) {
    const bool heard_of = std::any_of(
        view.workers.begin(), view.workers.end(), [&exclusion](const WorkerView& worker) {
          return worker.id == exclusion.id && worker.last_heard > exclusion.since;
        });
    const bool lapses = exclusion.until == Exclusion::Until::kHeardOf ||
                        (exclusion.until == Exclusion::Until::kNobodyElse && !somebody_else);
    if (!heard_of || !lapses) query.excluded.push_back(exclusion.id);
  }
  return query;
}

// Others come before those that start, and these before those that are avoided.
RouteQuery Dispatch::FirstChoice(const ClusterView& view, const RouteQuery& query) const {
  for (const bool with_starting : {false, true}) {
    RouteQuery careful = query;
    for (const WorkerView& worker : view.workers) {
      const bool is_avoided = worker.avoided_until > parts_.clock.Now();
      if (is_avoided || (worker.load->starting() && !with_starting)) {
        careful.excluded.push_back(worker.id);
      }
    }
    if (HasCandidates(view, careful)) return careful;
  }
  return query;
}

void Dispatch::BeginAttempt(RouteDecision decision) {
  decision_ = std::move(decision);
  ++attempts_;
  goes_on_ = told_.any() && !spec_.has_beams();
  told_.ListenFromStart();
  told_end_.assign(told_end_.size(), false);
  reports_ = {};
  queue_move_.OnQueued(parts_.clock.Now());
  prefill_charge_ = {.sequences = spec_.width(), .prompt_tokens = spec_.sequence.prompt_size()};
  parts_.cluster.Charge(decision_.prefill.id, prefill_charge_);
  if (decision_.route == v1::ROUTE_UNIFIED) return;
  decode_charge_ = {.sequences = spec_.width()};
  parts_.cluster.Charge(decision_.decode.id, decode_charge_);
}

void Dispatch::StartAttempt(RouteDecision decision) {
  BeginAttempt(std::move(decision));
  if (decision_.route == v1::ROUTE_UNIFIED) {
    StartUnified();
  } else {
    StartReserve();
  }
}

v1::SequenceRequest Dispatch::SequenceOfAttempt() const {
  v1::SequenceRequest sequence = spec_.sequence;
  sequence.set_request_id(IdOfAttempt(spec_, attempts_));
  return sequence;
}

template <typename Request>
void Dispatch::AddSoFar(Request& request) const {
  for (int32_t i = 0; goes_on_ && i < spec_.sequence.n(); ++i) {
    *request.add_so_far() = told_.SoFar(i);
  }
}

void Dispatch::StartUnified() {
  state_ = State::kUnified;
  reports_.accounted = true;  // nothing moves
  v1::GenerateOnWorkerRequest request;
  *request.mutable_sequence() = SequenceOfAttempt();
  request.set_epoch(decision_.prefill.id.incarnation);
  AddSoFar(request);
  if (goes_on_) told_.ListenBehind();
  prefill_call_ = parts_.workers.Generate(EndpointOf(decision_.prefill), request, spec_.deadline,
                                          PrefillSideHandlers());
}

v1::ReserveRequest Dispatch::ReserveFor(const RouteDecision& decision, uint64_t attempt) const {
  v1::ReserveRequest request;
  request.set_request_id(IdOfAttempt(spec_, attempt));
  *request.mutable_prompt() = spec_.sequence.prompt();
  request.set_max_tokens(spec_.sequence.max_tokens());
  request.set_width(spec_.width());
  request.set_priority(spec_.sequence.priority());
  request.set_tenant(spec_.sequence.tenant());
  request.set_cache_salt(spec_.sequence.cache_salt());
  *request.mutable_layout() = decision.prefill.info->layout;
  request.set_model_fingerprint(decision.prefill.info->model_fingerprint);
  request.set_epoch(decision.decode.id.incarnation);
  return request;
}

bool Dispatch::HasPlaceWithout(const WorkerId& id) const {
  const std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  RouteQuery query = Query(*view);
  query.excluded.push_back(id);
  return HasCandidates(*view, query);
}

void Dispatch::StartReserve() {
  state_ = State::kReserving;
  reserve_times_.started = parts_.clock.Now();
  v1::ReserveRequest request = ReserveFor(decision_, attempts_);
  // Only where the request has no other place does it wait for room.
  asked_at_once_ = HasPlaceWithout(decision_.decode.id);
  request.set_at_once(asked_at_once_);
  reserve_call_ =
      parts_.workers.Reserve(EndpointOf(decision_.decode), request, spec_.deadline,
                             [this](const CallEnd& end, const v1::ReserveResponse& response) {
                               OnReserved(end, response);
                             });
}

void Dispatch::OnReserved(const CallEnd& end, const v1::ReserveResponse& response) {
  reserve_call_.reset();
  const Duration took = parts_.clock.Now() - reserve_times_.started;
  // A refusal does not tell how long it was waited for; by one that had to wait it was all of it.
  const bool waited_in_vain = absl::IsResourceExhausted(end.status) && !asked_at_once_;
  const Duration queued =
      waited_in_vain ? took : Duration(std::chrono::microseconds(response.queued_us()));
  if (!told_.any()) {
    reserve_times_.asking += took - queued;
    reserve_times_.waiting += queued;
  }
  if (!end.status.ok()) {
    OnFailure(decision_.decode, end);
    return;
  }
  reserved_ = response.target();
  StartPrefill();
}

void Dispatch::StartPrefill() {
  state_ = State::kPrefilling;
  prompt_at_ = decision_.prefill.id;
  first_tokens_.assign(spec_.sequence.n(), {});
  v1::PrefillRequest request;
  *request.mutable_sequence() = SequenceOfAttempt();
  *request.mutable_target() = reserved_;
  request.set_epoch(decision_.prefill.id.incarnation);
  prefill_call_ = parts_.workers.Prefill(EndpointOf(decision_.prefill), request, spec_.deadline,
                                         PrefillSideHandlers());
}

void Dispatch::StartDecode() {
  state_ = State::kDecoding;
  v1::DecodeRequest request;
  *request.mutable_sequence() = SequenceOfAttempt();
  request.set_reservation_id(reserved_.reservation_id());
  request.set_epoch(reserved_.epoch());
  for (v1::TokenLogprobs& first : first_tokens_) *request.add_first_tokens() = std::move(first);
  AddSoFar(request);
  if (goes_on_) told_.ListenBehind();
  decode_call_ = parts_.workers.Decode(
      EndpointOf(decision_.decode), request, spec_.deadline,
      {.on_event = [this](const v1::WorkerEvent& event) { OnDecodeEvent(event); },
       .on_end = [this](const CallEnd& end) { OnDecodeEnd(end); }});
}

void Dispatch::EndChoice(int32_t index) {
  told_.End(index);
  // The prefill worker has said its part; the decode worker is told when it speaks of the choice.
  if ((state_ != State::kUnified && state_ != State::kDecoding) || told_end_[index]) return;
  told_end_[index] = true;
  v1::EndChoiceRequest request;
  request.set_request_id(IdOfAttempt(spec_, attempts_));
  request.set_index(index);
  const WorkerView& worker = state_ == State::kUnified ? decision_.prefill : decision_.decode;
  parts_.workers.EndChoice(EndpointOf(worker), request);
}

StreamHandlers Dispatch::PrefillSideHandlers() {
  return {.on_event = [this](const v1::WorkerEvent& event) { OnPrefillSideEvent(event); },
          .on_end = [this](const CallEnd& end) { OnPrefillSideEnd(end); }};
}

void Dispatch::OnPrefillSideEvent(const v1::WorkerEvent& event) {
  reports_.heard = true;
  switch (event.event_case()) {
    case v1::WorkerEvent::kTokens:
      GiveBackPrompt();
      TellTokens(decision_.prefill, event.tokens());
      if (state_ == State::kPrefilling) KeepFirstToken(event.tokens());
      return;
    case v1::WorkerEvent::kBeamStart:
      GiveBackPrompt();
      if (state_ != State::kPrefilling) return;
      first_tokens_ = {event.beam_start().first()};
      beam_stages_ = event.beam_start().stages();
      StartDecode();
      return;
    case v1::WorkerEvent::kChoiceFinish:
      TellChoiceEnded(decision_.prefill, event.choice_finish());
      return;
    case v1::WorkerEvent::kFinish:
      reports_.prefill_finished = true;
      reports_.kv = event.finish().kv();
      reports_.cached_tokens = event.finish().cached_tokens();
      reports_.preemptions += event.finish().preemptions();
      SetAccounted();
      return;
    case v1::WorkerEvent::EVENT_NOT_SET:
      return;
  }
}

void Dispatch::OnPrefillSideEnd(const CallEnd& end) {
  prefill_call_.reset();
  GiveBack(decision_.prefill.id, prefill_charge_);
  if (state_ == State::kDecoding) {
    if (!end.status.ok() && !reports_.decode_heard) {
      OnFailure(decision_.prefill, end);
      return;
    }
    SetAccounted();
    if (!ended() && decode_call_ == nullptr) Finish();
    return;
  }
  if (!end.status.ok()) {
    OnFailure(decision_.prefill, end);
  } else if (!reports_.prefill_finished) {
    Fail(Internal("{} worker {} ended its stream without a finish", Name(decision_.prefill.role),
                  decision_.prefill.id.name));
  } else {
    Finish();
  }
}

void Dispatch::OnDecodeEvent(const v1::WorkerEvent& event) {
  reports_.heard = true;
  reports_.decode_heard = true;
  if (event.has_tokens()) TellTokens(decision_.decode, event.tokens());
  if (event.has_choice_finish()) TellChoiceEnded(decision_.decode, event.choice_finish());
  if (!event.has_finish()) return;
  reports_.decode_finished = true;
  reports_.hidden_bytes = event.finish().kv().hidden_bytes();
  reports_.preemptions += event.finish().preemptions();
}

void Dispatch::OnDecodeEnd(const CallEnd& end) {
  decode_call_.reset();
  if (!end.status.ok()) {
    OnFailure(decision_.decode, end);
  } else if (!reports_.decode_finished) {
    Fail(Internal("decode worker {} ended its stream without a finish", decision_.decode.id.name));
  } else {
    reserved_.Clear();
    if (reports_.accounted) Finish();
  }
}

void Dispatch::TellTokens(const WorkerView& worker, const v1::WorkerTokens& tokens) {
  if (ended() || tokens.token_ids().empty() || !CheckIndex(worker, tokens.index())) return;
  const absl::StatusOr<v1::WorkerTokens> fresh = told_.Take(tokens);
  if (!fresh.ok()) {
    return Fail(
        Annotate(fresh.status(), fmt::format("{} worker {}", Name(worker.role), worker.id.name)));
  }
  if (fresh->token_ids().empty()) return;
  if (!begun_) begun_ = NumericsOfAttempt();
  const TimePoint now = parts_.clock.Now();
  if (interrupted_) {
    parts_.resumes.AddPause(interrupted_->cause, now - interrupted_->since, now - last_told_);
  }
  interrupted_.reset();
  last_told_ = now;
  const bool searched_here = state_ == State::kDecoding && spec_.has_beams();
  observer_.OnTokens(*fresh, searched_here ? beam_stages_ : fresh->stages());
}

void Dispatch::TellChoiceEnded(const WorkerView& worker, const v1::WorkerChoiceFinish& finish) {
  if (ended() || !CheckIndex(worker, finish.index())) return;
  told_.End(finish.index());
  observer_.OnChoiceEnded(finish);
}

Begun Dispatch::NumericsOfAttempt() const {
  const bool unified = decision_.route == v1::ROUTE_UNIFIED;
  return {.prompt = NumericsOf(decision_.prefill),
          .output = NumericsOf(unified ? decision_.prefill : decision_.decode)};
}

bool Dispatch::CheckIndex(const WorkerView& worker, int32_t index) {
  if (index >= 0 && index < spec_.sequence.n()) return true;
  Fail(Internal("{} worker {} spoke of choice {}; the request has {}", Name(worker.role),
                worker.id.name, index, spec_.sequence.n()));
  return false;
}

void Dispatch::KeepFirstToken(const v1::WorkerTokens& tokens) {
  if (spec_.has_beams() || tokens.token_ids().empty()) return;
  v1::TokenLogprobs& first = first_tokens_[tokens.index()];
  if (tokens.logprobs_size() > 0) first = tokens.logprobs(0);
  first.mutable_sampled()->set_token_id(tokens.token_ids(0));
  const bool all = std::all_of(first_tokens_.begin(), first_tokens_.end(),
                               [](const v1::TokenLogprobs& token) { return token.has_sampled(); });
  if (all && observer_.NeedsDecode()) StartDecode();
}

void Dispatch::SetAccounted() {
  if (reports_.accounted || ended()) return;
  reports_.accounted = true;
  observer_.OnAccounted();
}

void Dispatch::Describe(v1::ChoiceFinish& finish) const {
  const bool moved = decision_.route == v1::ROUTE_DISAGGREGATED;
  finish.set_route(decision_.route);
  finish.set_prefill_worker(decision_.prefill.id.name);
  finish.set_decode_worker(moved ? decision_.decode.id.name : decision_.prefill.id.name);
  if (!moved) return;
  v1::KvBytes& kv = *finish.mutable_kv_bytes();
  kv.set_raw(reports_.kv.raw_bytes());
  kv.set_wire(reports_.kv.wire_bytes());
  kv.set_transfer_ms(static_cast<double>(reports_.kv.duration_us()) / 1e3);
  kv.set_exposed_ms(static_cast<double>(reports_.kv.exposed_us()) / 1e3);
}

}  // namespace tandem
