#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "router/client/worker_client.h"

namespace tandem {

// Asks each worker once a turn, on the connection that its calls take, whether it serves.
// Heartbeats use another connection and another thread of the worker: they continue when this
// connection is cut or when the engine hangs. A worker that does not answer in two turns in a row
// that it serves, though a heartbeat arrives in each, is unreachable, and its connection is closed;
// the first such answer makes it reachable again. A leaving worker answers that it does not serve,
// so any answer of it counts. A worker whose heartbeats stop as well loses its lease, which is not
// decided here. Thread: the router's loop.
class Pings {
 public:
  // Whether a turn came when it was due. After a late one, unanswered pings do not count, because
  // the router itself may have been stalled.
  enum class Pace : uint8_t { kOnTime, kLate };
  // The workers whose state has changed since the last turn.
  struct Changes {
    std::vector<WorkerId> unreachable;
    std::vector<WorkerId> reachable;
  };

  // `workers` outlives the pings.
  explicit Pings(WorkerClient& workers) : workers_(workers) {}

  // Judges the pings of the last turn to the workers of `view`, and sends each of them another.
  Changes Turn(const ClusterView& view, TimePoint now, Pace pace);

 private:
  struct Ping {
    int missed = 0;  // the number of answers missed in a row
    TimePoint sent;
    std::optional<Health> answer;
    std::unique_ptr<WorkerCall> call;
  };

  static bool IsWell(const Ping& ping, const WorkerView& worker);
  // Counts a missed answer. Whether the worker has missed enough of them in a row.
  static bool IsMissed(Ping& ping, const WorkerView& worker, Pace pace);
  void Send(Ping& ping, const WorkerView& worker, TimePoint now);

  WorkerClient& workers_;
  std::map<WorkerId, Ping> pings_;
};

}  // namespace tandem
