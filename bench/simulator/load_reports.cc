#include "bench/simulator/load_reports.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "server/services/worker_messages.h"

namespace tandem::simulator {
namespace {

constexpr uint64_t kIncarnation = 1;
constexpr int32_t kWireVersion = 1;
// What a worker waits after a change before it reports, so that a burst of changes is one report.
constexpr Duration kNudgeDelay = std::chrono::milliseconds(50);

// A link as a worker reports it that has probed it.
v1::LinkStatus LinkTo(const std::string& peer, const LinkModel& model) {
  v1::LinkStatus link;
  link.set_peer(peer);
  link.set_transport("simulated");
  link.set_in_use(true);
  link.set_probe_gb_per_s(model.bytes_per_second * 1e-9);
  link.set_best_probe_gb_per_s(model.bytes_per_second * 1e-9);
  link.set_setup_us(model.setup.count() * 1e3);
  link.set_operation_us(model.operation.count() * 1e3);
  return link;
}

v1::RegisterRequest RegistrationOf(const SimulatedWorker& worker, v1::WorkerLoad load) {
  const WorkerConfig& config = worker.config();
  v1::RegisterRequest request;
  request.set_name(config.name);
  request.set_incarnation(kIncarnation);
  request.set_role(config.role);
  request.set_address(config.name + ":1");
  request.set_model(config.model->model);
  request.set_max_context_tokens(config.model->max_context_tokens);
  request.set_block_tokens(config.model->layout.block_tokens);
  *request.mutable_load() = std::move(load);
  request.set_device("simulated:" + config.model->name);
  *request.mutable_layout() = ToProto(config.model->layout);
  request.set_data_address(worker.data_address());
  request.set_wire_version(kWireVersion);
  request.set_simulated(true);
  request.set_model_fingerprint(WorkerCore::kFingerprint);
  if (worker.core().journal != nullptr) request.set_prefix_root(worker.core().prefix_root());
  request.set_max_step_tokens(worker.core().options.max_step_tokens);
  request.set_max_sequences(worker.core().options.max_sequences);
  return request;
}

}  // namespace

v1::WorkerLoad LoadReports::LoadOf(const SimulatedWorker& worker) const {
  v1::WorkerLoad load = ToLoad(worker.stats());
  if (worker.config().role != v1::WORKER_ROLE_PREFILL) return load;
  for (const std::string& peer : kv_peers_) {
    *load.add_links() = LinkTo(peer, *worker.config().model->link);
  }
  return load;
}

absl::Status LoadReports::Register(const std::vector<SimulatedWorker*>& workers) {
  for (const SimulatedWorker* const worker : workers) {
    const WorkerConfig& config = worker->config();
    if (config.role == v1::WORKER_ROLE_DECODE) kv_peers_.push_back(config.name);
  }
  for (SimulatedWorker* const worker : workers) {
    const absl::Status registered =
        parts_.cluster.Register(RegistrationOf(*worker, LoadOf(*worker)));
    if (!registered.ok()) return registered;
    reporters_.push_back({.worker = worker});
    const PrefixJournal* const journal = worker->core().journal.get();
    if (parts_.prefixes != nullptr && journal != nullptr) {
      reporters_.back().cached = std::make_unique<PrefixReader>(*journal);
    }
  }
  const Duration interval = parts_.cluster.options().heartbeat;
  for (size_t i = 0; i < reporters_.size(); ++i) {
    ReportAfter(reporters_[i], interval * (i + 1) / reporters_.size());
  }
  return absl::OkStatus();
}

LoadReports::Reporter& LoadReports::Find(const SimulatedWorker& worker) {
  const auto place = std::ranges::find(reporters_, &worker, &Reporter::worker);
  TANDEM_CHECK(place != reporters_.end(), "a worker that did not register reports");
  return *place;
}

void LoadReports::Nudge(const SimulatedWorker& worker) {
  Reporter& reporter = Find(worker);
  if (!std::exchange(reporter.nudged, true)) ReportAfter(reporter, kNudgeDelay);
}

void LoadReports::Leave(SimulatedWorker& worker) {
  Find(worker).leaving = true;
  parts_.network.Deliver(
      [this, &worker] { parts_.cluster.Deregister(worker.config().name, kIncarnation); });
  Nudge(worker);
}

void LoadReports::ReportAfter(Reporter& reporter, Duration delay) {
  const uint64_t number = ++reporter.next;
  parts_.timeline.After(delay, [this, &reporter, number] {
    if (number == reporter.next) Report(reporter);
  });
}

void LoadReports::Report(Reporter& reporter) {
  SimulatedWorker& worker = *reporter.worker;
  if (worker.dead()) return;
  reporter.nudged = false;
  if (reporter.leaving && worker.idle()) {
    parts_.network.Lose(worker);
    return parts_.network.Deliver(
        [this, &worker] { parts_.cluster.Deregister(worker.config().name, kIncarnation); });
  }
  v1::HeartbeatRequest request;
  request.set_name(worker.config().name);
  request.set_incarnation(kIncarnation);
  request.set_leaving(reporter.leaving);
  *request.mutable_load() = LoadOf(worker);
  if (reporter.cached != nullptr) {
    *request.mutable_cache() =
        ToProto(reporter.cached->Next(reporter.confirmed, PrefixIndex::kMostChanges));
  }
  parts_.network.Deliver(
      [this, &reporter, request = std::move(request)] { Arrive(reporter, request); });
  ReportAfter(reporter, parts_.cluster.options().heartbeat);
}

// The answer to a heartbeat takes no time here: the next report of the cache is later by far.
void LoadReports::Arrive(Reporter& reporter, const v1::HeartbeatRequest& request) {
  const absl::Status heard = parts_.cluster.Heartbeat(request);
  TANDEM_CHECK(heard.ok() || absl::IsNotFound(heard), heard.ToString());
  if (!heard.ok() || !request.has_cache()) return;
  reporter.confirmed =
      parts_.prefixes->Apply({request.name(), request.incarnation()}, request.cache());
  if (request.cache().more()) Nudge(*reporter.worker);
}

}  // namespace tandem::simulator
