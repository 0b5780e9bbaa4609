#pragma once

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "router/client/worker_client.h"

namespace tandem {

// Asks each worker once a turn, on the connection that its calls take, whether it serves. Its
// heartbeats come on another connection, and from another thread than its work: they go on when
// this connection is cut without a word, or when the worker hangs.
// A worker that does not say in two turns in a row that it serves, though it is heard of in each,
// is unreachable, and its connection is given up; the first such answer ends that. A worker that is
// leaving serves nothing new and says so; any answer of it counts. A worker that is not heard of
// either is a matter of its lease.
// Thread: the router's loop.
class Pings {
 public:
  // Whether a turn came when it was due. One that came late tells nothing of the workers.
  enum class Pace : uint8_t { kOnTime, kLate };
  // What changed since the last turn.
  struct Changes {
    std::vector<WorkerId> unreachable;
    std::vector<WorkerId> reachable;
  };

  // `workers` outlives it.
  explicit Pings(WorkerClient& workers) : workers_(workers) {}

  // Judges what the last turn sent to the workers of `view`, and sends to each again.
  Changes Turn(const ClusterView& view, TimePoint now, Pace pace);

 private:
  struct Ping {
    int missed = 0;  // turns in a row
    TimePoint sent;
    std::optional<Health> answer;
    std::unique_ptr<WorkerCall> call;
  };

  static bool IsWell(const Ping& ping, const WorkerView& worker);
  // Whether enough of them were missed now.
  static bool IsMissed(Ping& ping, const WorkerView& worker, Pace pace);
  void Send(Ping& ping, const WorkerView& worker, TimePoint now);

  WorkerClient& workers_;
  std::map<WorkerId, Ping> pings_;
};

}  // namespace tandem
