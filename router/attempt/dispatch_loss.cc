// What a request does when its workers are lost or leave, and how it ends.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "fmt/ranges.h"
#include "router/attempt/dispatch.h"

namespace tandem {
namespace {

// How long a request whose choices have all ended waits for its workers' last word: their streams
// end with the next step, and the KV has arrived. Only a lost worker keeps it waiting.
constexpr std::chrono::seconds kReportTimeout(2);

bool Contains(const std::vector<WorkerId>& ids, const WorkerId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

enum class Refusal : bool { kOfOther, kOfDecode };

// What the client is told of a worker's failure: always which worker it was.
absl::Status StatusFor(const WorkerView& worker, const CallEnd& end, Refusal of) {
  const std::string who = fmt::format("{} worker {}", Name(worker.role), worker.id.name);
  const std::string message(end.status.message());
  const absl::StatusCode code = end.status.code();
  if (end.lost() && code != absl::StatusCode::kDeadlineExceeded &&
      code != absl::StatusCode::kResourceExhausted) {
    return Unavailable("{} ({}) was lost: {}", who, worker.info->address, message);
  }
  // The decode worker took the request when it reserved: what it refuses now came from the prefill
  // worker or this router, and is not the client's fault.
  if (code == absl::StatusCode::kInvalidArgument && of == Refusal::kOfDecode) {
    return Internal("{}: {}", who, message);
  }
  // NOT_FOUND tells the client that its model does not exist; here a reservation has lapsed.
  if (code == absl::StatusCode::kNotFound) return Unavailable("{}: {}", who, message);
  return Annotate(end.status, who);
}

// A decode worker refuses a hand-off whose reservation has lapsed there or belonged to an earlier
// process of its name: that is a loss, too.
bool IsLoss(const WorkerView& worker, const CallEnd& end, const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsDataLoss(status)) return true;
  const bool refused = absl::IsFailedPrecondition(status) || absl::IsPermissionDenied(status);
  return refused && !end.lost() && worker.role == v1::WORKER_ROLE_PREFILL;
}

bool IsLeaving(const ClusterView& view, const WorkerId& id) {
  return std::any_of(view.workers.begin(), view.workers.end(),
                     [&id](const WorkerView& worker) { return worker.id == id && worker.leaving; });
}

ResumeCause CauseOf(const CallEnd& end) {
  switch (end.source) {
    case CallEnd::Source::kWorker:
      return ResumeCause::kHandOff;
    case CallEnd::Source::kNetwork:
      return ResumeCause::kConnection;
    case CallEnd::Source::kLease:
      return ResumeCause::kLease;
    case CallEnd::Source::kStuck:
      break;
  }
  return ResumeCause::kNoProgress;
}

}  // namespace

Dispatch::~Dispatch() { Abandon(); }

void Dispatch::Abandon() {
  if (ended()) return;
  state_ = State::kEnded;
  LeaveWorkers();
}

void Dispatch::Settle() {
  if (settled_ || ended()) return;
  settled_ = true;
  parts_.loop.PostAt(parts_.clock.Now() + kReportTimeout,
                     [this, alive = std::weak_ptr<bool>(alive_)] {
                       if (!alive.expired() && !ended()) Finish();
                     });
}

void Dispatch::OnWorkersLost(const std::vector<WorkerId>& lost, const CallEnd& end) {
  if (move_ &&
      (Contains(lost, move_->decision.decode.id) || Contains(lost, move_->decision.prefill.id))) {
    DropMove();
  }
  if (Contains(lost, decision_.prefill.id)) {
    // Who calls it once there is room would hear nothing of its loss.
    if (state_ == State::kReserving) return OnFailure(decision_.prefill, end);
    if (prefill_call_ != nullptr) OnPrefillSideEnd(end);
  }
  if (ended() || !Contains(lost, decision_.decode.id)) return;
  if (reserve_call_ != nullptr) {
    OnReserved(end, {});
  } else if (decode_call_ != nullptr || reserved_.reservation_id() != 0) {
    OnDecodeEnd(end);
  }
}

void Dispatch::OnWorkersLeaving(const std::vector<WorkerId>& leaving) {
  if (settled_ || move_ || !DependsOn(leaving)) return;
  absl::StatusOr<RouteDecision> decision = Choose();
  if (!decision.ok()) return;  // it ends where it is
  // So it does before another one is ready to go on.
  if (decision->prefill.load->starting() || decision->decode.load->starting()) return;
  const bool decodes = state_ == State::kUnified || state_ == State::kDecoding;
  if (decodes && decision->route == v1::ROUTE_DISAGGREGATED) {
    ReserveElsewhere(*std::move(decision));
  } else {
    Resume(ResumeCause::kLeaving);
  }
}

void Dispatch::ReserveElsewhere(RouteDecision decision) {
  Move& move = move_.emplace();
  move.decision = std::move(decision);
  move.charge = {.sequences = spec_.width()};
  parts_.cluster.Charge(move.decision.decode.id, move.charge);
  move.reserve = parts_.workers.Reserve(
      EndpointOf(move.decision.decode), ReserveFor(move.decision, attempts_ + 1), spec_.deadline,
      [this](const CallEnd& end, const v1::ReserveResponse& response) {
        OnRoomElsewhere(end, response);
      });
}

// Without room there it goes on where it is, and asks again when that worker is heard of.
void Dispatch::OnRoomElsewhere(const CallEnd& end, const v1::ReserveResponse& response) {
  RouteDecision decision = std::move(move_->decision);
  GiveBack(decision.decode.id, move_->charge);
  move_.reset();
  if (!end.status.ok()) return Exclude(decision.decode.id, Exclusion::Until::kHeardOf);
  if (!Leave(ResumeCause::kLeaving)) return ReleaseAt(decision.decode, response.target());
  BeginAttempt(std::move(decision));
  reserved_ = response.target();
  StartPrefill();
}

void Dispatch::DropMove() {
  if (!move_) return;
  GiveBack(move_->decision.decode.id, move_->charge);
  move_.reset();
}

// A prefill worker that leaves ends what it has begun: the other one would begin anew.
bool Dispatch::DependsOn(const std::vector<WorkerId>& workers) const {
  switch (state_) {
    case State::kUnified:
      return Contains(workers, decision_.prefill.id);
    case State::kReserving:
      return Contains(workers, decision_.prefill.id) || Contains(workers, decision_.decode.id);
    case State::kPrefilling:
    case State::kDecoding:
      return Contains(workers, decision_.decode.id);
    case State::kDeciding:
    case State::kWaiting:
    case State::kEnded:
      return false;
  }
  return false;
}

void Dispatch::OnClusterChanged() {
  if (state_ == State::kWaiting) return Decide();
  MoveFromQueue();
}

// The worker in whose queue the request may be; null when it is in none.
const WorkerView* Dispatch::QueuedAt(const ClusterView& view) const {
  const bool at_decode = state_ == State::kReserving && !asked_at_once_;
  if (settled_ || move_ || reports_.heard || (state_ != State::kUnified && !at_decode)) {
    return nullptr;
  }
  const WorkerId& id = at_decode ? decision_.decode.id : decision_.prefill.id;
  const auto found = std::find_if(view.workers.begin(), view.workers.end(),
                                  [&id](const WorkerView& worker) { return worker.id == id; });
  return found == view.workers.end() ? nullptr : &*found;
}

// Takes the request out of a worker's queue when workers that could begin it have become free.
void Dispatch::MoveFromQueue() {
  const std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  const WorkerView* const worker = QueuedAt(*view);
  const TimePoint now = parts_.clock.Now();
  if (worker == nullptr || !queue_move_.IsDue(*worker, now, parts_.cluster.options().heartbeat)) {
    return;
  }
  // Workers that were full may have room by now.
  for (Exclusion& one : excluded_) {
    if (one.until == Exclusion::Until::kEver) one.until = Exclusion::Until::kHeardOf;
  }
  RouteQuery query = FirstChoice(*view, Query(*view));
  query.excluded.push_back(worker->id);
  absl::StatusOr<RouteDecision> other = parts_.policy.Choose(*view, query);
  if (!other.ok() || !QueueMove::IsBetter(*worker, *other, spec_.width(), query.context_tokens)) {
    return;
  }
  if (state_ == State::kReserving && !told_.any())
    reserve_times_.waiting += now - reserve_times_.started;
  LogDebug("move request={} from={} prefill={} decode={}", spec_.id, worker->id.name,
           other->prefill.id.name, other->decode.id.name);
  queue_move_.OnMoved();
  parts_.reroutes.CountMoved();
  LeaveWorkers();
  StartAttempt(*std::move(other));
}

void Dispatch::OnFailure(const WorkerView& worker, const CallEnd& end) {
  const bool of_decode = state_ == State::kDecoding && worker.role == v1::WORKER_ROLE_DECODE;
  const absl::Status status =
      StatusFor(worker, end, of_decode ? Refusal::kOfDecode : Refusal::kOfOther);
  if (end.lost() && absl::IsUnavailable(status)) {
    parts_.cluster.Suspect(worker.id);
  }
  if (settled_) return Finish();  // the client has all that it wanted
  if (absl::IsResourceExhausted(status) && !reports_.heard) return TryAnother(worker, status);
  if (!IsLoss(worker, end, status)) return Fail(status);
  last_failure_ = status;
  const bool hands_over = state_ == State::kPrefilling || state_ == State::kDecoding;
  // NOT_FOUND: a reservation lapsed, or a worker lives anew.
  const bool hand_off_failed =
      hands_over && !end.lost() && !reports_.decode_heard && !absl::IsNotFound(end.status);
  if (hand_off_failed) parts_.cluster.Avoid(decision_.decode.id);
  if (hand_off_failed && worker.role == v1::WORKER_ROLE_PREFILL) {
    ExcludeOfHandOff();
  } else {
    Exclude(worker.id,
            hand_off_failed ? Exclusion::Until::kNobodyElse : Exclusion::Until::kHeardOf);
  }
  if (IsLeaving(*parts_.cluster.View(), worker.id)) return Resume(ResumeCause::kLeaving);
  lost_.push_back(worker.id.name);
  if (losses_ == parts_.resume_limits.max_resumes) return GiveUp(std::string(status.message()));
  ++losses_;
  Resume(CauseOf(end));
}

void Dispatch::Exclude(const WorkerId& id, Exclusion::Until until) {
  std::erase_if(excluded_, [&id](const Exclusion& one) { return one.id == id; });
  excluded_.push_back({.id = id, .since = parts_.clock.Now(), .until = until});
}

// Which of the two is at fault nobody knows. That both send heartbeats says nothing of the way
// between them, and a decode worker that gets no KV looks idle. The prefill worker has the prompt:
// it may send it to another one, unless it failed so before and another one can prefill.
void Dispatch::ExcludeOfHandOff() {
  const WorkerId& prefill = decision_.prefill.id;
  const WorkerId& decode = decision_.decode.id;
  const bool failed_before = std::any_of(
      excluded_.begin(), excluded_.end(),
      [&](const Exclusion& one) { return one.unreached_by == prefill && one.id != decode; });
  if (failed_before && HasPlaceWithout(prefill)) {
    Exclude(prefill, Exclusion::Until::kNobodyElse);
    return;
  }
  Exclude(decode, Exclusion::Until::kNobodyElse);
  excluded_.back().unreached_by = prefill;
  if (!HasPlaceWithout(decode)) Exclude(prefill, Exclusion::Until::kHeardOf);
}

// Each worker is asked once; after a loss, once per report: it may have room by then. One that was
// asked at once is asked again if nobody is left (ForgiveHaste), until one was waited for.
void Dispatch::TryAnother(const WorkerView& worker, const absl::Status& status) {
  Exclude(worker.id, resumes_ > 0 ? Exclusion::Until::kHeardOf : Exclusion::Until::kEver);
  if (state_ == State::kReserving && asked_at_once_) {
    excluded_.back().asked_at_once = true;
  } else if (state_ == State::kReserving) {
    for (Exclusion& one : excluded_) one.asked_at_once = false;
  }
  refused_ = true;
  LogInfo("reroute request={} status=\"{}\"", spec_.id, status.ToString());
  last_failure_ = status;
  LeaveWorkers();
  Decide();
}

void Dispatch::Resume(ResumeCause cause) {
  if (Leave(cause)) Decide();
}

bool Dispatch::Leave(ResumeCause cause) {
  EndWhatIsOver();
  if (!ended() && settled_) Finish();
  if (ended()) return false;
  const TimePoint now = parts_.clock.Now();
  if (now >= spec_.deadline) {
    Fail(DeadlineExceeded("the deadline passed when workers were lost: {}",
                          std::string(last_failure_.message())));
    return false;
  }
  LeaveWorkers();
  ++resumes_;
  parts_.resumes.Count(cause);
  LogInfo("resume request={} number={} cause={} prefill={} decode={} why=\"{}\"", spec_.id,
          resumes_, Name(cause), decision_.prefill.id.name, decision_.decode.id.name,
          last_failure_.ToString());
  if (!interrupted_) interrupted_ = Interruption{.since = now, .cause = cause};
  for (Exclusion& exclusion : excluded_) {
    if (exclusion.until == Exclusion::Until::kEver) exclusion.until = Exclusion::Until::kHeardOf;
  }
  BePatient();
  return true;
}

// From here on.
void Dispatch::BePatient() {
  wait_until_ = std::min(spec_.deadline, parts_.clock.Now() + parts_.resume_limits.max_wait);
  parts_.loop.PostAt(wait_until_, [this, alive = std::weak_ptr<bool>(alive_)] {
    if (!alive.expired()) OnClusterChanged();
  });
}

// Nobody can take a request that is new, but a worker was lost or left of late: it, or another in
// its place, may be there in a moment.
bool Dispatch::IsWorthWaiting(const absl::Status& nobody) const {
  const std::optional<TimePoint> departure = parts_.cluster.LatestDeparture();
  return departure && parts_.resume_limits.max_resumes > 0 && last_failure_.ok() &&
         absl::IsUnavailable(nobody) &&
         parts_.clock.Now() < *departure + parts_.resume_limits.max_wait;
}

void Dispatch::EndWhatIsOver() {
  for (int32_t i = 0; !spec_.has_beams() && !ended() && i < spec_.sequence.n(); ++i) {
    const v1::WorkerFinish::Reason reason = told_.ReasonOf(i);
    if (told_.ended(i) || reason == v1::WorkerFinish::REASON_UNSPECIFIED) continue;
    told_.End(i);
    v1::WorkerChoiceFinish finish;
    finish.set_index(i);
    finish.set_reason(reason);
    observer_.OnChoiceEnded(finish);
  }
}

void Dispatch::WaitForNews(const absl::Status& nobody) {
  if (wait_until_ == TimePoint{}) BePatient();
  if (parts_.clock.Now() >= wait_until_) {
    if (resumes_ == 0 && lost_.empty()) return Fail(last_failure_.ok() ? nobody : last_failure_);
    const std::string why(nobody.message());
    if (last_failure_.ok()) return GiveUp(why);
    return GiveUp(fmt::format("{}; then {}", std::string(last_failure_.message()), why));
  }
  state_ = State::kWaiting;
  LogDebug("wait request={} for=\"{}\"", spec_.id, std::string(nobody.message()));
}

void Dispatch::GiveUp(const std::string& why) {
  parts_.resumes.CountGaveUp();
  if (parts_.clock.Now() >= spec_.deadline) {
    return Fail(DeadlineExceeded("the deadline passed while no worker could go on: {}; lost: {}",
                                 why, fmt::join(lost_, ", ")));
  }
  Fail(Unavailable("{}; resumed {} times, lost: {}", why, resumes_, fmt::join(lost_, ", ")));
}

void Dispatch::Finish() {
  state_ = State::kEnded;
  LeaveWorkers();
  observer_.OnFinished();
}

void Dispatch::Fail(const absl::Status& status) {
  state_ = State::kEnded;
  LeaveWorkers();
  observer_.OnFailed(status);
}

void Dispatch::LeaveWorkers() {
  reserve_call_.reset();
  prefill_call_.reset();
  decode_call_.reset();
  DropMove();
  if (reserved_.reservation_id() != 0) ReleaseAt(decision_.decode, reserved_);
  reserved_.Clear();
  GiveBack(decision_.prefill.id, prefill_charge_);
  GiveBack(decision_.decode.id, decode_charge_);
}

void Dispatch::ReleaseAt(const WorkerView& decode, const v1::KvTarget& target) {
  v1::ReleaseRequest request;
  request.set_reservation_id(target.reservation_id());
  request.set_epoch(target.epoch());
  parts_.workers.Release(EndpointOf(decode), request);
}

void Dispatch::GiveBackPrompt() {
  WorkerCharge prompt{.sequences = 0, .prompt_tokens = prefill_charge_.prompt_tokens};
  prefill_charge_.prompt_tokens = 0;
  GiveBack(decision_.prefill.id, prompt);
}

void Dispatch::GiveBack(const WorkerId& id, WorkerCharge& charge) {
  if (charge.sequences == 0 && charge.prompt_tokens == 0) return;
  parts_.cluster.Discharge(id, charge);
  charge = {};
}

}  // namespace tandem
