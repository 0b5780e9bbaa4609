#pragma once

#include <cstdint>

#include "base/clock.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model/cost_state.h"
#include "scheduler/stats.h"

namespace tandem {

// Counts since the start.
struct HandoffCounts {
  uint64_t sent = 0;      // hand-offs that the peer acknowledged
  uint64_t received = 0;  // reservations whose KV is complete and verified
  uint64_t retried = 0;   // streams that were opened again after a loss
  uint64_t lapsed = 0;    // reservations whose lease or deadline passed
  uint64_t refused = 0;   // reservations for which there was no room in time
};

// A snapshot for status pages, heartbeats and tests. `kv.free_blocks` are neither in a sequence nor
// cached.
struct EngineStats {
  // Weights load, the runner warms up or steps are measured: requests are accepted and wait.
  bool starting = true;
  SchedulerStats scheduler;
  CostState costs;
  KvStats kv;
  int32_t most_used_blocks = 0;      // the most blocks that sequences held at any time
  double fragmentation = 0;          // share of the slots in sequences' blocks that hold no token
  int32_t reservations = 0;          // with blocks set aside
  int32_t waiting_reservations = 0;  // without room yet
  int32_t draining_reservations =
      0;                 // of `reservations`: released while a payload was being written
  int32_t handoffs = 0;  // streams that send KV, or will
  HandoffCounts handoff_counts;
  uint64_t requests_accepted = 0;
  uint64_t requests_finished = 0;  // with any status
  uint64_t prompt_tokens = 0;      // computed
  uint64_t output_tokens = 0;      // sampled
  uint64_t steps = 0;
  uint64_t host_copied_blocks = 0;  // between device and host, in both directions
  Duration host_copy_time{};        // the time of these copies
  uint64_t kv_bytes_sent = 0;
  uint64_t kv_bytes_received = 0;
};

}  // namespace tandem
