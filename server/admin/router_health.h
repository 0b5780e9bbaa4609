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

// Tells whether a router is live: its event loop moves; and whether it is ready: it is live, has a
// route whose workers make progress and that requests pass, is not draining, and accepts one more
// connection.
// Thread-safe.
class RouterHealth {
 public:
  // What the health of a router depends on. All parts but the functions must outlive it; the
  // functions must not block.
  struct Parts {
    EventLoop& loop;
    const Cluster& cluster;
    const Clock& clock;
    std::function<v1::ConnectionUse()> connections;  // use of the gRPC port
    // Called on the watchdog's thread each time that the readiness has changed; a router begins as
    // not ready.
    std::function<void(bool ready)> changed;
    const Canary* canary = nullptr;  // null: no canary requests are sent
    // How the watchdog watches the loop; its callback `looked` is replaced by this class.
    WatchdogOptions watching = {};
  };
  explicit RouterHealth(Parts parts);

  HealthReport Live() const;
  HealthReport Ready() const;
  // Makes the router not ready from now on, because it takes no more requests.
  void SetDraining() { draining_ = true; }

 private:
  WatchdogOptions Watching();
  std::vector<Pulse> Pulses() const;
  HealthCheck RoutesCheck() const;
  void TellIfChanged();

  const Parts parts_;
  // Beats of the loop; shared with the loop's tasks, which may outlive this.
  const std::shared_ptr<std::atomic<uint64_t>> beats_;
  std::atomic<bool> draining_ = false;
  bool told_ready_ = false;  // used by the watchdog's thread only
  Watchdog watchdog_;        // last: its thread uses the other members
};

}  // namespace tandem
