#include "router/attempt/failover.h"

#include <algorithm>

#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

using Action = FailoverStep::Action;

bool IsAtDecodeWorker(const AttemptFailure& failure) {
  return failure.stage == AttemptStage::kDecoding && failure.worker.role == v1::WORKER_ROLE_DECODE;
}

// The status that the client gets for a worker's failure. It always names the worker.
absl::Status StatusFor(const AttemptFailure& failure) {
  const CallEnd& end = failure.end;
  const std::string worker = RoleAndName(failure.worker);
  const std::string message(end.status.message());
  const absl::StatusCode code = end.status.code();
  if (end.lost() && code != absl::StatusCode::kDeadlineExceeded &&
      code != absl::StatusCode::kResourceExhausted) {
    return Unavailable("{} ({}) was lost: {}", worker, failure.worker.info->address, message);
  }
  // The decode worker accepted the request when it reserved blocks: what it refuses now came from
  // the prefill worker or this router, and is not the client's fault.
  if (code == absl::StatusCode::kInvalidArgument && IsAtDecodeWorker(failure)) {
    return Internal("{}: {}", worker, message);
  }
  // A client reads NOT_FOUND as a model that does not exist; here a reservation has lapsed.
  if (code == absl::StatusCode::kNotFound) return Unavailable("{}: {}", worker, message);
  return Annotate(end.status, worker);
}

// Whether a failure loses the attempt but not the request: another attempt may succeed. That
// includes a hand-off that the decode worker refused, as its prefill worker reports, because the
// reservation has lapsed or belonged to an earlier process of that name.
bool IsLoss(const AttemptFailure& failure, const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsDataLoss(status)) return true;
  const bool refused = absl::IsFailedPrecondition(status) || absl::IsPermissionDenied(status);
  return refused && !failure.end.lost() && failure.worker.role == v1::WORKER_ROLE_PREFILL;
}

// Whether the KV did not reach the decode worker, though the failing worker answers.
bool IsFailedHandOff(const AttemptFailure& failure) {
  const bool hands_over =
      failure.stage == AttemptStage::kPrefilling || failure.stage == AttemptStage::kDecoding;
  // NOT_FOUND does not count: the reservation has lapsed, or the worker was started again.
  return hands_over && !failure.end.lost() && !failure.kv_arrived &&
         !absl::IsNotFound(failure.end.status);
}

bool IsLeaving(const ClusterView& view, const WorkerId& id) {
  const WorkerView* const worker = view.Find(id);
  return worker != nullptr && worker->leaving;
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

FailoverStep Failover::OnFailure(const AttemptFailure& failure, bool settled,
                                 const ClusterView& view, const RouteQuery& query, TimePoint now) {
  const absl::Status status = StatusFor(failure);
  FailoverStep step{.action = Action::kFail, .status = status};
  if (failure.end.lost() && absl::IsUnavailable(status)) step.suspect = failure.worker.id;
  if (settled) {
    step.action = Action::kFinish;
    return step;
  }
  if (absl::IsResourceExhausted(status) && !failure.heard) {
    ExcludeRefusing(failure, now);
    last_failure_ = status;
    step.action = Action::kTryAnother;
    return step;
  }
  if (!IsLoss(failure, status)) return step;
  last_failure_ = status;
  if (IsFailedHandOff(failure)) step.avoid = failure.workers.decode->id;
  ExcludeLost(failure, view, query, now);
  if (IsLeaving(view, failure.worker.id)) {
    step.action = Action::kResume;
    step.cause = ResumeCause::kLeaving;
    return step;
  }
  lost_.push_back(failure.worker.id.name);
  if (losses_ == limits_.max_resumes) {
    step.gave_up = true;
    step.status = StatusOfGivingUp(std::string(status.message()), now);
    return step;
  }
  ++losses_;
  step.action = Action::kResume;
  step.cause = CauseOf(failure.end);
  return step;
}

void Failover::ExcludeLost(const AttemptFailure& failure, const ClusterView& view,
                           const RouteQuery& query, TimePoint now) {
  if (!IsFailedHandOff(failure)) {
    exclusions_.Add(failure.worker.id, Exclusions::Until::kReport, now);
  } else if (failure.worker.role == v1::WORKER_ROLE_PREFILL) {
    exclusions_.AddHandOff(failure.workers.prefill.id, failure.workers.decode->id, view, query,
                           now);
  } else {
    exclusions_.Add(failure.worker.id, Exclusions::Until::kNoOtherPlace, now);
  }
}

// Excludes a worker that refused. Each worker is asked once; after a resume it is asked once per
// report, because it may have room by then.
void Failover::ExcludeRefusing(const AttemptFailure& failure, TimePoint now) {
  exclusions_.Add(failure.worker.id,
                  resumes_ > 0 ? Exclusions::Until::kReport : Exclusions::Until::kAttempts, now);
  if (failure.stage != AttemptStage::kReserving) return;
  if (failure.could_queue) {
    exclusions_.KeepNoWait();
  } else {
    exclusions_.MarkLatestNoWait();
  }
}

FailoverStep Failover::OnLeave(ResumeCause cause, TimePoint now) {
  if (now >= deadline_) {
    return {.action = Action::kFail,
            .status = DeadlineExceeded("the deadline passed when workers were lost: {}",
                                       std::string(last_failure_.message()))};
  }
  ++resumes_;
  exclusions_.Relax();
  ExtendRetryDeadline(now);
  return {.action = Action::kResume, .cause = cause};
}

FailoverStep Failover::OnNoRoute(const absl::Status& no_route,
                                 std::optional<TimePoint> latest_departure, TimePoint now) {
  const absl::Status failure = last_failure_.ok() ? no_route : last_failure_;
  if (resumes_ == 0 && !IsWorthWaiting(no_route, latest_departure, now)) {
    return {.action = Action::kFail, .status = failure};
  }
  if (!retry_deadline_) ExtendRetryDeadline(now);
  if (now < *retry_deadline_) return {.action = Action::kWait};
  if (resumes_ == 0 && lost_.empty()) return {.action = Action::kFail, .status = failure};
  const std::string why(no_route.message());
  const std::string all =
      last_failure_.ok() ? why
                         : fmt::format("{}; then {}", std::string(last_failure_.message()), why);
  return {.action = Action::kFail, .status = StatusOfGivingUp(all, now), .gave_up = true};
}

// Whether a request that no worker can take should wait: a worker was lost or left recently, and
// it, or one in its place, may be there in a moment.
bool Failover::IsWorthWaiting(const absl::Status& no_route,
                              std::optional<TimePoint> latest_departure, TimePoint now) const {
  return latest_departure && limits_.max_resumes > 0 && last_failure_.ok() &&
         absl::IsUnavailable(no_route) && now < *latest_departure + limits_.max_wait;
}

void Failover::ExtendRetryDeadline(TimePoint now) {
  retry_deadline_ = std::min(deadline_, now + limits_.max_wait);
}

absl::Status Failover::StatusOfGivingUp(const std::string& why, TimePoint now) const {
  if (now >= deadline_) {
    return DeadlineExceeded("the deadline passed while no worker could continue: {}; lost: {}", why,
                            fmt::join(lost_, ", "));
  }
  return Unavailable("{}; resumed {} times, lost: {}", why, resumes_, fmt::join(lost_, ", "));
}

}  // namespace tandem
