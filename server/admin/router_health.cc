#include "server/admin/router_health.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tandem {
namespace {

using Beats = std::shared_ptr<std::atomic<uint64_t>>;

// Increments `beats` on the loop's thread, now and after every `interval`.
void Beat(EventLoop& loop, const Clock& clock, Duration interval, const Beats& beats) {
  beats->fetch_add(1, std::memory_order_relaxed);
  loop.PostAt(clock.Now() + interval,
              [&loop, &clock, interval, beats] { Beat(loop, clock, interval, beats); });
}

}  // namespace

RouterHealth::RouterHealth(Parts parts)
    : parts_(std::move(parts)),
      beats_(std::make_shared<std::atomic<uint64_t>>(0)),
      watchdog_(
          Watching(), [this] { return Pulses(); }, [](const std::string&) {}) {
  // An idle loop runs nothing, so a task is posted for every other look of the watchdog.
  parts_.loop.Post([&loop = parts_.loop, &clock = parts_.clock,
                    interval = 2 * parts_.watching.interval,
                    beats = beats_] { Beat(loop, clock, interval, beats); });
}

WatchdogOptions RouterHealth::Watching() {
  WatchdogOptions options = parts_.watching;
  options.looked = [this] { TellIfChanged(); };
  return options;
}

// The pulse of the loop; none before the loop has begun, so that it does not count as stuck.
std::vector<Pulse> RouterHealth::Pulses() const {
  const uint64_t beats = *beats_;
  if (beats == 0) return {};
  return {{.name = "router", .count = beats}};
}

HealthCheck RouterHealth::RoutesCheck() const {
  const std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  HealthCheck check{.name = "routes"};
  if (view->Routes().empty()) {
    check.problem =
        "no route: no unified worker, and no pair of a prefill and a decode worker, makes progress";
  }
  std::optional<TimePoint> latest;
  for (const WorkerView& worker : view->workers) {
    if (worker.usable()) latest = std::max(latest.value_or(worker.last_report), worker.last_report);
  }
  if (latest) check.age = parts_.clock.Now() - *latest;
  return check;
}

HealthReport RouterHealth::Live() const {
  return {.checks = ThreadChecks(watchdog_, ThreadProof::kNoneHangs)};
}

HealthReport RouterHealth::Ready() const {
  HealthReport report = Live();
  report.checks.push_back(RoutesCheck());
  if (parts_.canary != nullptr) report.checks.push_back(parts_.canary->Check());
  report.checks.push_back(
      {.name = "draining", .problem = draining_ ? "the router is draining" : ""});
  report.checks.push_back({.name = "connections",
                           .problem = parts_.connections().full()
                                          ? "the gRPC port has all the connections that it may have"
                                          : ""});
  return report;
}

void RouterHealth::TellIfChanged() {
  const bool ready = Ready().ok();
  if (ready == told_ready_) return;
  told_ready_ = ready;
  parts_.changed(ready);
}

}  // namespace tandem
