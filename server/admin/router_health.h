#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "router/cluster/cluster.h"
#include "router/event_loop.h"
#include "server/admin/canary.h"
#include "server/admin/health.h"
#include "server/admin/watchdog.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// Whether a router is live: its event loop moves; and whether it is ready: it also has a route whose
// workers prove progress and that requests pass, is not draining, and takes one more connection. Thread-safe.
class RouterHealth {
 public:
  // All outlive this but for the functions, which must not block.
  struct Parts {
    EventLoop& loop;
    const Cluster& cluster;
    const Clock& clock;
    std::function<v1::ConnectionUse()> connections;  // of the gRPC port
    // Called on the watchdog's thread each time that readiness has changed; a router begins as not ready.
    std::function<void(bool ready)> changed;
    const Canary* canary = nullptr;  // null: requests are not tried
    // How the loop is watched; `looked` is this class's own.
    WatchdogOptions watching = {};
  };
  explicit RouterHealth(Parts parts);

  HealthReport Live() const;
  HealthReport Ready() const;
  // The router takes no more requests: it is not ready from now on.
  void SetDraining() { draining_ = true; }

 private:
  WatchdogOptions Watching();
  std::vector<Pulse> Pulses() const;
  HealthCheck RoutesCheck() const;
  void TellIfChanged();

  const Parts parts_;
  // Shared with the loop's tasks, which may outlive this.
  const std::shared_ptr<std::atomic<uint64_t>> beats_;
  std::atomic<bool> draining_ = false;
  bool told_ready_ = false;  // the watchdog's thread's
  Watchdog watchdog_;        // last: its thread uses the rest
};

}  // namespace tandem
