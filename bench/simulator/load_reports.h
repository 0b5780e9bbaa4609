#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/simulator/network.h"
#include "bench/simulator/timeline.h"
#include "bench/simulator/worker.h"
#include "kvstore/prefix_journal.h"
#include "router/cluster/cluster.h"
#include "router/prefix/prefix_index.h"

namespace tandem::simulator {

// Registers simulated workers at a router and sends their heartbeats, as server/assembly/
// registration.cc does: one per interval, and one soon after a request has ended. So the router's
// view of the load is as old as that of a real router.
// Thread: the router's loop.
class LoadReports {
 public:
  struct Parts {
    Timeline& timeline;
    Cluster& cluster;
    SimulatedNetwork& network;
    PrefixIndex* prefixes = nullptr;  // null: the router keeps none
  };
  explicit LoadReports(const Parts& parts) : parts_(parts) {}

  // `workers` outlive it. The first heartbeats are spread over one interval.
  absl::Status Register(const std::vector<SimulatedWorker*>& workers);
  // The load of this worker has changed.
  void Nudge(const SimulatedWorker& worker);
  // The worker ends its requests and takes no new ones.
  void Leave(SimulatedWorker& worker);

 private:
  struct Reporter {
    SimulatedWorker* worker = nullptr;
    uint64_t next = 0;    // number of the report that is awaited; earlier ones are void
    bool nudged = false;  // a report follows soon
    bool leaving = false;
    std::unique_ptr<PrefixReader> cached;  // null: what is cached is not reported
    uint64_t confirmed = 0;                // the latest report of the cache that the router applied
  };

  v1::WorkerLoad LoadOf(const SimulatedWorker& worker) const;
  Reporter& Find(const SimulatedWorker& worker);
  void ReportAfter(Reporter& reporter, Duration delay);
  void Report(Reporter& reporter);
  void Arrive(Reporter& reporter, const v1::HeartbeatRequest& request);

  const Parts parts_;
  std::vector<Reporter> reporters_;
  std::vector<std::string> kv_peers_;  // names of the decode workers
};

}  // namespace tandem::simulator
