#include "router/cluster.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "router/agreement.h"
#include "router/load_check.h"

namespace tandem {
namespace {

// What the other side of a hand-off has to know besides the layout.
absl::Status CheckHandsOver(const v1::RegisterRequest& request) {
  if (request.role() == v1::WORKER_ROLE_DECODE && request.data_address().empty()) {
    return InvalidArgument("data_address is empty: a decode worker needs one for KV");
  }
  if (request.wire_version() <= 0) return InvalidArgument("wire_version is missing");
  return absl::OkStatus();
}

absl::Status CheckComplete(const v1::RegisterRequest& request) {
  if (request.name().empty()) return InvalidArgument("name is empty: a worker needs one");
  if (request.incarnation() == 0) return InvalidArgument("incarnation is 0: use the start time");
  if (request.address().empty()) return InvalidArgument("address is empty: give host:port");
  if (request.max_context_tokens() < 2) {
    return InvalidArgument("max_context_tokens={} must be at least 2",
                           request.max_context_tokens());
  }
  if (request.layout().num_layers() <= 0 || request.layout().dtype().empty()) {
    return InvalidArgument("layout is empty: a worker says how it keeps KV");
  }
  switch (request.role()) {
    case v1::WORKER_ROLE_UNIFIED:
      return absl::OkStatus();
    case v1::WORKER_ROLE_PREFILL:
    case v1::WORKER_ROLE_DECODE:
      return CheckHandsOver(request);
    default:
      return InvalidArgument("role={} is none of unified, prefill and decode",
                             static_cast<int>(request.role()));
  }
}

WorkerView ToView(const v1::RegisterRequest& request, TimePoint now) {
  return WorkerView{.id = {request.name(), request.incarnation()},
                    .role = request.role(),
                    .address = request.address(),
                    .device = request.device(),
                    .pid = request.pid(),
                    .max_context_tokens = request.max_context_tokens(),
                    .model_fingerprint = request.model_fingerprint(),
                    .layout = request.layout(),
                    .data_address = request.data_address(),
                    .wire_version = request.wire_version(),
                    .load = request.load(),
                    .last_heard = now};
}

}  // namespace

Cluster::Cluster(ClusterOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      published_(std::make_shared<const ClusterView>()) {}

absl::Status Cluster::CheckMayJoin(const WorkerView& joining) const {
  for (const WorkerView& other : current_.workers) {
    if (other.id.name != joining.id.name) {
      RETURN_IF_ERROR(CheckAgrees(joining, other));
    } else if (other.id.incarnation > joining.id.incarnation) {
      return FailedPrecondition(
          "the name {} belongs to a younger process (pid {}, incarnation {}) than this one "
          "(pid {}, incarnation {}): give each worker its own --name",
          other.id.name, other.pid, other.id.incarnation, joining.pid, joining.id.incarnation);
    }  // else replaced by this registration
  }
  return absl::OkStatus();
}

absl::Status Cluster::Register(const v1::RegisterRequest& request) {
  RETURN_IF_ERROR(CheckComplete(request));
  RETURN_IF_ERROR(CheckLoad(request.load()));
  if (request.model() != options_.model) {
    return NotFound("model {} is not served here; this router serves {}", request.model(),
                    options_.model);
  }
  {
    absl::MutexLock lock(&mutex_);
    WorkerView joining = ToView(request, clock_.Now());
    RETURN_IF_ERROR(CheckMayJoin(joining));
    Admit(std::move(joining));
    Publish();
  }
  TellListener();
  return absl::OkStatus();
}

void Cluster::Admit(WorkerView joining) {
  auto& workers = current_.workers;
  auto place = std::find_if(workers.begin(), workers.end(), [&joining](const WorkerView& worker) {
    return worker.id.name >= joining.id.name;
  });
  // Those that are leaving end what they have.
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
      latest_departure_ = joining.last_heard;
    }
    *place = std::move(joining);
    return;
  }
  workers.insert(place, std::move(joining));
}

absl::Status Cluster::Heartbeat(const v1::HeartbeatRequest& request) {
  RETURN_IF_ERROR(CheckLoad(request.load()));
  {
    absl::MutexLock lock(&mutex_);
    const WorkerId id{request.name(), request.incarnation()};
    WorkerView* worker = Find(id);
    if (worker == nullptr) return NoLease(id);
    worker->load = request.load();
    worker->last_heard = clock_.Now();
    worker->suspected = false;
    Publish();
  }
  TellListener();
  return absl::OkStatus();
}

absl::Status Cluster::NoLease(const WorkerId& id) const {
  for (const WorkerView& other : current_.workers) {
    if (other.id.name != id.name) continue;
    return NotFound(
        "worker {} has no lease here as incarnation {}: the name is that of incarnation {} (pid "
        "{})",
        id.name, id.incarnation, other.id.incarnation, other.pid);
  }
  return NotFound("worker {} has no lease here: register again", id.name);
}

void Cluster::Deregister(std::string_view name, uint64_t incarnation) {
  {
    absl::MutexLock lock(&mutex_);
    const WorkerId id{std::string(name), incarnation};
    WorkerView* const worker = Find(id);
    if (worker == nullptr) return;
    if (!std::exchange(worker->leaving, true)) {
      worker->last_heard = clock_.Now();
      latest_departure_ = worker->last_heard;
    } else {
      std::erase_if(current_.workers, [&id](const WorkerView& one) { return one.id == id; });
    }
    Publish();
  }
  TellListener();
}

void Cluster::SetListener(std::function<void()> changed) {
  absl::MutexLock lock(&mutex_);
  listener_ = std::move(changed);
}

void Cluster::TellListener() {
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
    Publish();
  }
}

void Cluster::Avoid(const WorkerId& id) {
  absl::MutexLock lock(&mutex_);
  if (WorkerView* worker = Find(id)) {
    worker->avoided_until = clock_.Now() + kAvoided;
    Publish();
  }
}

void Cluster::SetReach(const WorkerId& id, Reach reach) {
  {
    absl::MutexLock lock(&mutex_);
    WorkerView* const worker = Find(id);
    if (worker == nullptr) return;
    worker->unreachable = reach == Reach::kLost;
    if (worker->unreachable) latest_departure_ = clock_.Now();
    Publish();
  }
  TellListener();
}

void Cluster::Charge(const WorkerId& id, const WorkerCharge& charge) {
  absl::MutexLock lock(&mutex_);
  if (WorkerView* worker = Find(id)) {
    worker->charged.sequences += charge.sequences;
    worker->charged.prompt_tokens += charge.prompt_tokens;
    Publish();
  }
}

void Cluster::Discharge(const WorkerId& id, const WorkerCharge& charge) {
  Charge(id, {.sequences = -charge.sequences, .prompt_tokens = -charge.prompt_tokens});
}

void Cluster::Postpone(Duration stood_still) {
  absl::MutexLock lock(&mutex_);
  const TimePoint now = clock_.Now();
  for (WorkerView& worker : current_.workers) {
    worker.last_heard = std::min(now, worker.last_heard + stood_still);
  }
  Publish();
}

std::vector<WorkerId> Cluster::Expire() {
  absl::MutexLock lock(&mutex_);
  std::vector<WorkerId> expired;
  const TimePoint now = clock_.Now();
  for (const WorkerView& worker : current_.workers) {
    if (worker.last_heard + options_.lease <= now) expired.push_back(worker.id);
  }
  if (expired.empty()) return expired;
  latest_departure_ = now;
  std::erase_if(current_.workers, [this, now](const WorkerView& worker) {
    return worker.last_heard + options_.lease <= now;
  });
  Publish();
  return expired;
}

std::vector<WorkerId> Cluster::TakeReplaced() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(replaced_, {});
}

TimePoint Cluster::NextExpiry() const {
  absl::MutexLock lock(&mutex_);
  TimePoint next = kNoDeadline;
  for (const WorkerView& worker : current_.workers) {
    next = std::min(next, worker.last_heard + options_.lease);
  }
  return next;
}

std::optional<TimePoint> Cluster::LatestDeparture() const {
  absl::MutexLock lock(&mutex_);
  return latest_departure_;
}

std::shared_ptr<const ClusterView> Cluster::View() const {
  absl::MutexLock lock(&mutex_);
  return published_;
}

WorkerView* Cluster::Find(const WorkerId& id) {
  for (WorkerView& worker : current_.workers) {
    if (worker.id == id) return &worker;
  }
  return nullptr;
}

void Cluster::Publish() { published_ = std::make_shared<const ClusterView>(current_); }

}  // namespace tandem
