#include "router/attempt/dispatch.h"

#include <utility>

#include "base/log.h"
#include "base/retry_after.h"
#include "base/status.h"

namespace tandem {
namespace {

// How long a request whose choices have all ended waits for its workers' last reports: their
// streams end with the next step, and the KV has arrived. Only a lost worker keeps it waiting.
constexpr std::chrono::seconds kReportTimeout(2);

// How many tokens a choice that has `emitted` ones is expected to have still to come.
double TokensToCome(const LengthForecasts& forecasts, const RequestSpec& spec, int32_t emitted) {
  const double length = spec.may_stop() ? forecasts.Predict(spec.length_query(emitted)).mean
                                        : spec.sequence.max_tokens();
  return std::max(length - emitted, 1.0);
}

// Adds what only a decision needs: what workers have cached of the prompt, and where the session
// is.
RouteQuery WithPlaces(RouteQuery query, const RouterParts& parts, const RequestSpec& spec) {
  if (parts.prefixes != nullptr && spec.prompt_hashes != nullptr) {
    query.hits =
        std::make_shared<const std::vector<WorkerHit>>(parts.prefixes->Find(*spec.prompt_hashes));
  }
  if (parts.sessions != nullptr && spec.session != 0) {
    query.session = parts.sessions->Find(spec.session);
  }
  return query;
}

// Counts and logs the route that a request takes, and remembers it for its session.
void CountRoute(const RouterParts& parts, const RequestSpec& spec, const RouteDecision& decision) {
  LogDebug("route request_id={} trace_id={} prefill={} decode={} {}", spec.id, spec.trace_id(),
           decision.prefill.name, decision.decode.name, ToText(decision.score));
  parts.routing.Count(decision);
  if (parts.sessions != nullptr && spec.session != 0) {
    parts.sessions->Set(spec.session, {.prefill = decision.prefill, .decode = decision.decode});
  }
}

// Whether the request would start in time on the route of `decision`; OK where nothing is
// predicted.
absl::Status CheckStart(const RouterParts& parts, const RequestSpec& spec,
                        const RouteDecision& decision) {
  const std::optional<PlacementPrediction>& predicted = decision.score.prediction;
  if (!predicted) return absl::OkStatus();
  const TimePoint now = parts.clock.Now();
  return parts.admission.CheckStart({.tenant = spec.sequence.tenant(),
                                     .priority = spec.sequence.priority(),
                                     .ttft = predicted->ttft,
                                     .wait = predicted->stages.queue + predicted->stages.admission,
                                     .interval = parts.decisions.TtftInterval(decision),
                                     .elapsed = now - spec.received,
                                     .left = spec.deadline - now,
                                     .ttft_slo = spec.slo.ttft});
}

std::string_view NameOf(DecisionCause cause) {
  switch (cause) {
    case DecisionCause::kArrival:
      return "arrival";
    case DecisionCause::kRefused:
      return "refused";
    case DecisionCause::kResumed:
      return "resumed";
    case DecisionCause::kMoved:
      return "moved";
  }
  return "unknown";
}

// Records the span of the decision on a route, which includes the wait for a worker before it.
void TraceDecision(const RequestSpec& spec, TimePoint since, TimePoint now,
                   const absl::Status& status) {
  if (!spec.trace.records()) return;
  spec.trace.Begin("route", SpanKind::kInternal, since).End(now, status);
}

TracePoint TraceAttempt(const RouterParts& parts, const RequestSpec& spec,
                        const RouteDecision& decision, DecisionCause cause, uint64_t number) {
  if (!spec.trace.records()) return spec.trace;
  const TracePoint span = spec.trace.Begin("attempt", SpanKind::kInternal, parts.clock.Now());
  const bool is_unified = decision.route == v1::ROUTE_UNIFIED;
  span.Set("tandem.attempt", static_cast<int64_t>(number));
  span.Set("tandem.decision.cause", std::string(NameOf(cause)));
  span.Set("tandem.decision.score", ToText(decision.score));
  span.Set("tandem.route", is_unified ? "unified" : "disaggregated");
  span.Set("tandem.worker.prefill", decision.prefill.name);
  if (!is_unified) span.Set("tandem.worker.decode", decision.decode.name);
  return span;
}

void LeaveQueue(const RouterParts& parts, Attempt& attempt, QueueMove& move) {
  move.OnMoved();
  parts.reroutes.CountMoved();
  attempt.LeaveQueue();
}

}  // namespace

Dispatch::Dispatch(const RouterParts& parts, const RequestSpec& spec, DispatchObserver& observer)
    : parts_(parts),
      spec_(spec),
      observer_(observer),
      relay_(spec, observer, parts.clock, parts.resumes, parts.proofs),
      failover_(parts.resume_limits, spec.deadline) {}

Dispatch::~Dispatch() { Abandon(); }

void Dispatch::Decide() {
  if (state_ != State::kWaiting) earlier_.decides_since = parts_.clock.Now();
  state_ = State::kDeciding;
  std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  absl::StatusOr<RouteDecision> decision = Choose(*view);
  if (!decision.ok() && failover_.exclusions().ClearNoWait()) {
    decision = Choose(*view);
    if (!decision.ok()) failover_.ForgetRefusal();
  }
  if (decision.ok()) {
    if (attempts_ == 0) {
      if (absl::Status in_time = CheckStart(parts_, spec_, *decision); !in_time.ok()) {
        return Fail(in_time);
      }
    }
    DecisionCause cause = attempts_ > 0 ? DecisionCause::kResumed : DecisionCause::kArrival;
    if (std::exchange(refused_, false)) {
      cause = DecisionCause::kRefused;
      parts_.reroutes.Count(KindOf(attempt_->workers(), *decision),
                            std::string(failover_.last_failure().message()));
    }
    TraceDecision(spec_, earlier_.decides_since, parts_.clock.Now(), absl::OkStatus());
    return StartAttempt(*decision, std::move(view), cause);
  }
  const std::optional<TimePoint> scheduled = failover_.retry_deadline();
  FailoverStep step =
      failover_.OnNoRoute(decision.status(), parts_.cluster.LatestDeparture(), parts_.clock.Now());
  if (step.action == FailoverStep::Action::kWait) {
    state_ = State::kWaiting;
    observer_.OnWaits();
    LogDebug("wait request_id={} trace_id={} for=\"{}\"", spec_.id, spec_.trace_id(),
             std::string(decision.status().message()));
    if (failover_.retry_deadline() != scheduled) ScheduleRetry();
    return;
  }
  if (step.gave_up) parts_.resumes.CountGaveUp();
  if (absl::IsResourceExhausted(step.status) && !RetryAfter(step.status)) {
    const Duration next_report = parts_.cluster.options().heartbeat;
    SetRetryAfter(step.status, std::chrono::duration_cast<std::chrono::milliseconds>(next_report));
  }
  TraceDecision(spec_, earlier_.decides_since, parts_.clock.Now(), step.status);
  Fail(step.status);
}

absl::StatusOr<RouteDecision> Dispatch::Choose(const ClusterView& view) {
  const RouteQuery query = failover_.exclusions().Apply(view, WithPlaces(Query(), parts_, spec_));
  return parts_.policy.Choose(view, PreferReady(view, query, parts_.clock.Now()));
}

RouteQuery Dispatch::Query() const {
  // The tokens that the client has are computed together with the prompt by another worker.
  const int32_t emitted = relay_.output().LeastEmitted();
  return {.wanted = spec_.wanted,
          .prompt_tokens = spec_.sequence.prompt_size() + emitted,
          .evicted_tokens = spec_.evicted_tokens(),
          .context_tokens = spec_.sequence.prompt_size() + spec_.sequence.max_tokens(),
          .sequences = spec_.width(),
          .expected_output_tokens = TokensToCome(parts_.length_forecasts, spec_, emitted),
          .slo = spec_.slo,
          .excluded = {},
          .begun = relay_.begun(),
          .prompt_at = prompt_at_};
}

std::unique_ptr<Attempt> Dispatch::NewAttempt(const RouteDecision& decision,
                                              const ClusterView& view, DecisionCause cause) {
  parts_.decisions.Add(spec_, Query(), cause, decision, parts_.clock.Now());
  AttemptWorkers workers{.prefill = *view.Find(decision.prefill)};
  if (decision.route == v1::ROUTE_DISAGGREGATED) workers.decode = *view.Find(decision.decode);
  AttemptOwner& owner = *this;
  const AttemptParts parts{.cluster = parts_.cluster,
                           .ledger = parts_.ledger,
                           .workers = parts_.workers,
                           .clock = parts_.clock,
                           .prefixes = parts_.prefixes,
                           .trace = TraceAttempt(parts_, spec_, decision, cause, attempts_ + 1)};
  const RouteQuery query = Query();
  const ExpectedWork expected{.prompt_tokens = query.prompt_tokens,
                              .output_tokens = query.expected_output_tokens,
                              .most_output_tokens = query.context_tokens - query.prompt_tokens};
  return std::make_unique<Attempt>(parts, spec_, relay_, owner, std::move(workers), expected,
                                   attempts_ + 1);
}

void Dispatch::StartAttempt(const RouteDecision& decision, std::shared_ptr<const ClusterView> view,
                            DecisionCause cause) {
  CountRoute(parts_, spec_, decision);
  ReplaceAttempt(NewAttempt(decision, *view, cause));
  const bool is_unified = decision.route == v1::ROUTE_UNIFIED;
  // The request queues for room only where no other worker can take it.
  const bool has_other_place =
      !is_unified && failover_.exclusions().HasPlaceWithout(decision.decode, *view, Query());
  view.reset();  // the attempt charges its workers, which copies a view that is still held
  if (is_unified) return attempt_->Generate();
  attempt_->Reserve(has_other_place ? Attempt::ReserveMode::kRefuse : Attempt::ReserveMode::kQueue);
}

void Dispatch::ReplaceAttempt(std::unique_ptr<Attempt> attempt) {
  const TimePoint now = parts_.clock.Now();
  if (attempt_ == nullptr) {
    earlier_.first_began = now;
  } else {
    const ReserveTimes& before = attempt_->reports().reserve;
    earlier_.reserve.asking += before.asking;
    earlier_.reserve.waiting += before.waiting;
  }
  if (!relay_.output().any()) {
    earlier_.rest = now - earlier_.first_began - earlier_.reserve.asking - earlier_.reserve.waiting;
  }
  attempt_ = std::move(attempt);
  ++attempts_;
  state_ = State::kRunning;
  queue_move_.OnQueued(now);
  observer_.OnWaits();
}

void Dispatch::OnReserved(Attempt& attempt) {
  if (&attempt == next_.get()) {
    std::unique_ptr<Attempt> next = std::move(next_);
    if (const std::optional<RouteDecision> route = queue_move_.TakeAsked()) {
      if (attempt_->QueuedAt() == nullptr) return;  // the request has begun meanwhile
      LeaveQueue(parts_, *attempt_, queue_move_);
      CountRoute(parts_, spec_, *route);
    } else if (!LeaveAttempt(ResumeCause::kLeaving)) {
      return;
    }
    ReplaceAttempt(std::move(next));
  }
  prompt_at_ = attempt_->workers().prefill.id;
  attempt_->Prefill();
}

void Dispatch::OnAttemptFailed(Attempt& attempt, const AttemptFailure& failure) {
  const TimePoint now = parts_.clock.Now();
  // No blocks were reserved elsewhere: the request stays where it is, and looks for another place
  // two heartbeats later.
  if (&attempt == next_.get()) {
    failover_.exclusions().Add(failure.worker.id, Exclusions::Until::kReport, now);
    queue_move_.OnStays(now);
    next_.reset();
    return;
  }
  const FailoverStep step =
      failover_.OnFailure(failure, settled_, *parts_.cluster.View(), Query(), now);
  if (step.suspect) parts_.cluster.Suspect(*step.suspect);
  if (step.avoid) parts_.cluster.Avoid(*step.avoid);
  if (step.gave_up) parts_.resumes.CountGaveUp();
  switch (step.action) {
    case FailoverStep::Action::kFinish:
      return Finish();
    case FailoverStep::Action::kResume:
      return Resume(step.cause);
    case FailoverStep::Action::kTryAnother:
      LogInfo("reroute request_id={} trace_id={} status=\"{}\"", spec_.id, spec_.trace_id(),
              step.status.ToString());
      refused_ = true;
      attempt_->Stop();
      next_.reset();
      return Decide();
    case FailoverStep::Action::kWait:
    case FailoverStep::Action::kFail:
      return Fail(step.status);
  }
}

void Dispatch::Resume(ResumeCause cause) {
  if (LeaveAttempt(cause)) Decide();
}

bool Dispatch::LeaveAttempt(ResumeCause cause) {
  relay_.EndCompleteChoices();
  if (!ended() && settled_) Finish();
  if (ended()) return false;
  const FailoverStep step = failover_.OnLeave(cause, parts_.clock.Now());
  if (step.action == FailoverStep::Action::kFail) {
    Fail(step.status);
    return false;
  }
  attempt_->Stop();
  next_.reset();
  parts_.resumes.Count(cause);
  const AttemptWorkers& left = attempt_->workers();
  LogInfo("resume request_id={} trace_id={} number={} cause={} prefill={} decode={} why=\"{}\"",
          spec_.id, spec_.trace_id(), failover_.resumes(), Name(cause), left.prefill.id.name,
          left.output().id.name, failover_.last_failure().ToString());
  relay_.Interrupt(cause);
  ScheduleRetry();
  return true;
}

void Dispatch::ScheduleRetry() {
  parts_.loop.PostAt(*failover_.retry_deadline(), [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) OnClusterChanged();
  });
}

void Dispatch::OnWorkersLost(const std::vector<WorkerId>& lost, const CallEnd& end) {
  if (next_ != nullptr && next_->DependsOn(lost)) next_.reset();
  if (attempt_ != nullptr) attempt_->OnWorkersLost(lost, end);
}

void Dispatch::OnWorkersLeaving(const std::vector<WorkerId>& leaving) {
  if (settled_ || next_ != nullptr || attempt_ == nullptr || !attempt_->DependsOn(leaving)) return;
  const std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  const absl::StatusOr<RouteDecision> decision = Choose(*view);
  if (!decision.ok()) return;  // the request ends where it is
  // A starting worker cannot take requests yet, so the request stays where it is until another
  // worker is ready.
  for (const WorkerId& id : {decision->prefill, decision->decode}) {
    const WorkerView* const worker = view->Find(id);
    if (worker != nullptr && worker->load->starting()) return;
  }
  const bool produces =
      attempt_->stage() == AttemptStage::kUnified || attempt_->stage() == AttemptStage::kDecoding;
  if (!produces || decision->route != v1::ROUTE_DISAGGREGATED) {
    return Resume(ResumeCause::kLeaving);
  }
  next_ = NewAttempt(*decision, *view, DecisionCause::kResumed);
  queue_move_.OnAsked(std::nullopt);
  next_->Reserve(Attempt::ReserveMode::kAhead);
}

bool Dispatch::waits() const {
  if (state_ == State::kWaiting) return true;
  const bool leaves_queue = next_ != nullptr && queue_move_.is_asked();
  return attempt_ != nullptr && (leaves_queue || attempt_->QueuedAt() != nullptr);
}

void Dispatch::OnClusterChanged() {
  if (state_ == State::kWaiting) return Decide();
  if (settled_ || attempt_ == nullptr) return;
  if (attempt_->QueuedAt() == nullptr) {
    if (next_ != nullptr && queue_move_.is_asked()) next_.reset();  // the request has begun
    return;
  }
  const TimePoint now = parts_.clock.Now();
  const Duration heartbeat = parts_.cluster.options().heartbeat;
  // Most requests wait for a few steps only, so no other route is looked for before the wait is
  // long.
  if (next_ != nullptr || !queue_move_.HasWaited(now, heartbeat)) return;
  std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  const WorkerView* const worker = view->Find(*attempt_->QueuedAt());
  const int32_t context_tokens = spec_.sequence.prompt_size() + spec_.sequence.max_tokens();
  if (worker == nullptr || !queue_move_.IsDue(*worker, now, heartbeat) ||
      !QueueMove::MayFindBetter(*worker, *view, spec_.width(), context_tokens)) {
    return;
  }
  failover_.exclusions().Relax();
  RouteQuery query = WithPlaces(Query(), parts_, spec_);
  query.waits_at = attempt_->WaitingParts();
  query = PreferReady(*view, failover_.exclusions().Apply(*view, query), now);
  // The policy may choose the worker where the request waits: over a slow link the KV could take
  // longer than the wait.
  const absl::StatusOr<RouteDecision> other = parts_.policy.Reconsider(*view, query);
  if (!other.ok() ||
      !QueueMove::IsBetter(*worker, *other, *view, spec_.width(), query.context_tokens)) {
    return queue_move_.OnStays(now);
  }
  LogDebug("move request_id={} trace_id={} from={} prefill={} decode={}", spec_.id,
           spec_.trace_id(), worker->id.name, other->prefill.name, other->decode.name);
  if (other->route == v1::ROUTE_UNIFIED) {
    LeaveQueue(parts_, *attempt_, queue_move_);
    return StartAttempt(*other, std::move(view), DecisionCause::kMoved);
  }
  next_ = NewAttempt(*other, *view, DecisionCause::kMoved);
  queue_move_.OnAsked(*other);
  next_->Reserve(Attempt::ReserveMode::kAhead);
}

void Dispatch::EndChoice(int32_t index) {
  relay_.output().End(index);
  if (attempt_ != nullptr) attempt_->EndChoice(index);
}

void Dispatch::Settle() {
  if (settled_ || ended()) return;
  settled_ = true;
  parts_.loop.PostAt(parts_.clock.Now() + kReportTimeout,
                     [this, alive = std::weak_ptr<bool>(alive_)] {
                       if (!alive.expired() && !ended()) Finish();
                     });
}

void Dispatch::Abandon() {
  if (ended()) return;
  state_ = State::kEnded;
  relay_.Close();
  next_.reset();
  if (attempt_ != nullptr) attempt_->Stop();
}

void Dispatch::Finish() {
  Abandon();
  observer_.OnFinished();
}

void Dispatch::Fail(const absl::Status& status) {
  Abandon();
  observer_.OnFailed(status);
}

RequestReport Dispatch::Report() const {
  RequestReport report;
  report.reserve = earlier_.reserve;
  report.earlier_attempts = earlier_.rest;
  report.resumes = failover_.resumes();
  if (attempt_ == nullptr) return report;
  const AttemptWorkers& workers = attempt_->workers();
  report.route = workers.route();
  report.prefill = workers.prefill.id;
  report.decode = workers.output().id;
  report.last = attempt_->reports();
  report.reserve.asking += report.last.reserve.asking;
  report.reserve.waiting += report.last.reserve.waiting;
  return report;
}

}  // namespace tandem
