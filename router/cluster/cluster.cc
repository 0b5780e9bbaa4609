#include "router/cluster/cluster.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "router/cluster/agreement.h"
#include "router/cluster/load_check.h"
#include "router/cluster/registration_check.h"

namespace tandem {
namespace {

WorkerView ToView(const v1::RegisterRequest& request, TimePoint now) {
  WorkerView worker;
  worker.id = {request.name(), request.incarnation()};
  worker.role = request.role();
  worker.info = std::make_shared<const WorkerInfo>(
      WorkerInfo{.address = request.address(),
                 .device = request.device(),
                 .pid = request.pid(),
                 .max_context_tokens = request.max_context_tokens(),
                 .model_fingerprint = request.model_fingerprint(),
                 .layout = request.layout(),
                 .data_address = request.data_address(),
                 .wire_version = request.wire_version(),
                 .prefix_root = request.prefix_root(),
                 .max_step_tokens = request.max_step_tokens(),
                 .max_sequences = request.max_sequences()});
  worker.load = std::make_shared<const v1::WorkerLoad>(request.load());
  worker.last_report = now;
  return worker;
}

// Reads the costs in `load`. Where their revision is that of `known`, only the error is read: the
// rest is equal, while the error changes with every step of the worker.
absl::StatusOr<std::shared_ptr<const WorkerCosts>> CostsIn(
    const v1::WorkerLoad& load, const std::shared_ptr<const WorkerCosts>& known) {
  if (!load.has_cost()) return nullptr;
  const v1::CostModel& cost = load.cost();
  if (known == nullptr || known->revision != cost.revision()) return ReadCosts(cost);
  if (known->error == cost.error()) return known;
  RETURN_IF_ERROR(CheckError(cost.error()));
  WorkerCosts costs = *known;
  costs.error = cost.error();
  return std::make_shared<const WorkerCosts>(std::move(costs));
}

// A process that still sends heartbeats keeps its name, whatever start time another one claims.
absl::Status CheckMayReplace(const WorkerView& joining, const WorkerView& holder,
                             Duration heartbeat) {
  constexpr int kSilentHeartbeats = 2;
  if (holder.leaving) return absl::OkStatus();
  const Duration silence = joining.last_report - holder.last_report;
  const bool silent = silence > kSilentHeartbeats * heartbeat;
  if (!silent && !holder.suspected && !holder.unreachable) {
    return FailedPrecondition(
        "the name {} belongs to a process whose heartbeat came {} ms ago: give each worker its own "
        "--name; if this one replaces that process, it may have the name once that one is silent",
        holder.id.name, std::chrono::duration_cast<std::chrono::milliseconds>(silence).count());
  }
  if (holder.id.incarnation < joining.id.incarnation) return absl::OkStatus();
  return FailedPrecondition(
      "the name {} belongs to a process that started later: give each worker its own --name",
      holder.id.name);
}

}  // namespace

Cluster::Cluster(ClusterOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock), current_(std::make_shared<Version>()) {}

absl::Status Cluster::CheckMayJoin(const WorkerView& joining) const {
  bool is_known = false;
  const std::vector<WorkerView>& workers = current_->view.workers;
  for (const WorkerView& other : workers) {
    if (other.id == joining.id) {
      is_known = true;
    } else if (other.id.name != joining.id.name) {
      RETURN_IF_ERROR(CheckAgrees(joining, other));
    } else {
      RETURN_IF_ERROR(CheckMayReplace(joining, other, options_.heartbeat));
      is_known = is_known || !other.leaving;
    }
  }
  if (is_known || workers.size() < options_.max_workers) return absl::OkStatus();
  return ResourceExhausted(
      "this router has {} workers and takes no more: raise its --max-workers, or start another",
      workers.size());
}

absl::Status Cluster::Register(const v1::RegisterRequest& request) {
  RETURN_IF_ERROR(CheckRegistration(request));
  ASSIGN_OR_RETURN(std::shared_ptr<const WorkerCosts> costs, CostsIn(request.load(), nullptr));
  if (request.model() != options_.model) {
    return NotFound("model {} is not served here; this router serves {}", request.model(),
                    options_.model);
  }
  {
    absl::MutexLock lock(&mutex_);
    WorkerView joining = ToView(request, clock_.Now());
    joining.costs = std::move(costs);
    RETURN_IF_ERROR(CheckMayJoin(joining));
    Admit(std::move(joining));
  }
  NotifyListener();
  return absl::OkStatus();
}

void Cluster::Admit(WorkerView joining) {
  auto& workers = Changing().workers;
  auto place = std::find_if(workers.begin(), workers.end(), [&joining](const WorkerView& worker) {
    return worker.id.name >= joining.id.name;
  });
  // Leaving workers of the same name stay in the view until they have finished their requests.
  for (; place != workers.end() && place->id.name == joining.id.name; ++place) {
    if (place->id == joining.id) {
      joining.charged = place->charged;
      joining.unreachable = place->unreachable;
      joining.avoided_until = place->avoided_until;
    } else if (place->leaving) {
      place->name_taken = true;
      continue;
    } else {
      replaced_.push_back(place->id);
      latest_departure_ = joining.last_report;
    }
    *place = std::move(joining);
    return;
  }
  workers.insert(place, std::move(joining));
}

absl::Status Cluster::Heartbeat(const v1::HeartbeatRequest& request) {
  RETURN_IF_ERROR(CheckLoad(request.load()));
  auto report = std::make_shared<const v1::WorkerLoad>(request.load());
  absl::Status disagrees;
  {
    absl::MutexLock lock(&mutex_);
    const WorkerId id{request.name(), request.incarnation()};
    WorkerView* worker = Find(id);
    // The message does not say whether the name has another holder: the caller may be anyone.
    if (worker == nullptr) return NotFound("this worker has no lease here: register again");
    ASSIGN_OR_RETURN(worker->costs, CostsIn(*report, worker->costs));
    const bool has_new_hash = worker->load->weights_hash() != report->weights_hash();
    worker->load = std::move(report);
    const TimePoint now = clock_.Now();
    const Duration silence = now - std::exchange(worker->last_report, now);
    worker->suspected = false;
    UpdateLeaving(*worker, request.leaving(), silence);
    if (has_new_hash) disagrees = CheckMayJoin(*worker);
    if (!disagrees.ok()) {
      replaced_.push_back(id);  // the requests of this worker continue elsewhere
      latest_departure_ = worker->last_report;
      std::erase_if(Changing().workers, [&id](const WorkerView& one) { return one.id == id; });
    }
  }
  NotifyListener();
  return disagrees;
}

// A worker's own report counts more than a Deregister, which anyone may have sent. A heartbeat that
// arrives right after the Deregister was sent before it and does not count.
void Cluster::UpdateLeaving(WorkerView& worker, bool reports_leaving, Duration silence) {
  if (reports_leaving) return SetLeaving(worker);
  if (!worker.leaving || worker.name_taken || silence < options_.heartbeat / 2) return;
  if (CheckMayJoin(worker).ok()) worker.leaving = false;
}

void Cluster::SetLeaving(WorkerView& worker) {
  if (std::exchange(worker.leaving, true)) return;
  latest_departure_ = clock_.Now();
}

bool Cluster::Deregister(std::string_view name, uint64_t incarnation) {
  {
    absl::MutexLock lock(&mutex_);
    const WorkerId id{std::string(name), incarnation};
    WorkerView* const worker = Find(id);
    if (worker == nullptr) return false;
    if (!worker->leaving) {
      worker->last_report = clock_.Now();
      SetLeaving(*worker);
    } else {
      std::erase_if(Changing().workers, [&id](const WorkerView& one) { return one.id == id; });
    }
  }
  NotifyListener();
  return true;
}

void Cluster::SetListener(std::function<void()> changed) {
  absl::MutexLock lock(&mutex_);
  listener_ = std::move(changed);
}

void Cluster::NotifyListener() {
  std::function<void()> listener;
  {
    absl::MutexLock lock(&mutex_);
    listener = listener_;
  }
  if (listener) listener();
}

void Cluster::Suspect(const WorkerId& id) {
  absl::MutexLock lock(&mutex_);
  if (WorkerView* worker = Find(id)) {
    worker->suspected = true;
    latest_departure_ = clock_.Now();
  }
}

void Cluster::Avoid(const WorkerId& id) {
  absl::MutexLock lock(&mutex_);
  if (WorkerView* worker = Find(id)) {
    worker->avoided_until = clock_.Now() + kAvoided;
  }
}

void Cluster::SetReach(const WorkerId& id, Reach reach) {
  {
    absl::MutexLock lock(&mutex_);
    WorkerView* const worker = Find(id);
    if (worker == nullptr) return;
    worker->unreachable = reach == Reach::kLost;
    if (worker->unreachable) latest_departure_ = clock_.Now();
  }
  NotifyListener();
}

void Cluster::Charge(const WorkerId& id, const WorkerCharge& charge) {
  absl::MutexLock lock(&mutex_);
  if (WorkerView* worker = Find(id)) {
    worker->charged.sequences += charge.sequences;
    worker->charged.prompt_tokens += charge.prompt_tokens;
  }
}

void Cluster::Discharge(const WorkerId& id, const WorkerCharge& charge) {
  Charge(id, {.sequences = -charge.sequences, .prompt_tokens = -charge.prompt_tokens});
}

void Cluster::Postpone(Duration stall) {
  absl::MutexLock lock(&mutex_);
  const TimePoint now = clock_.Now();
  for (WorkerView& worker : Changing().workers) {
    worker.last_report = std::min(now, worker.last_report + stall);
  }
}

std::vector<WorkerId> Cluster::Expire() {
  absl::MutexLock lock(&mutex_);
  std::vector<WorkerId> expired;
  const TimePoint now = clock_.Now();
  for (const WorkerView& worker : current_->view.workers) {
    if (worker.last_report + options_.lease <= now) expired.push_back(worker.id);
  }
  if (expired.empty()) return expired;
  latest_departure_ = now;
  std::erase_if(Changing().workers, [this, now](const WorkerView& worker) {
    return worker.last_report + options_.lease <= now;
  });
  return expired;
}

std::vector<WorkerId> Cluster::TakeReplaced() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(replaced_, {});
}

TimePoint Cluster::NextExpiry() const {
  absl::MutexLock lock(&mutex_);
  TimePoint next = kNoDeadline;
  for (const WorkerView& worker : current_->view.workers) {
    next = std::min(next, worker.last_report + options_.lease);
  }
  return next;
}

std::optional<TimePoint> Cluster::LatestDeparture() const {
  absl::MutexLock lock(&mutex_);
  return latest_departure_;
}

std::shared_ptr<const ClusterView> Cluster::View() const {
  absl::MutexLock lock(&mutex_);
  ++current_->readers;
  return {&current_->view, [this, version = current_](const ClusterView*) {
            absl::MutexLock gave_back(&mutex_);
            --version->readers;
          }};
}

ClusterView& Cluster::Changing() {
  if (current_->readers > 0) {
    current_ = std::make_shared<Version>(Version{.view = current_->view, .readers = 0});
  }
  return current_->view;
}

WorkerView* Cluster::Find(const WorkerId& id) {
  std::vector<WorkerView>& workers = Changing().workers;
  const auto found = std::ranges::lower_bound(workers, id, {}, &WorkerView::id);
  return found == workers.end() || found->id != id ? nullptr : &*found;
}

}  // namespace tandem
