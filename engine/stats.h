#pragma once

#include <cstdint>

#include "base/clock.h"
#include "kvstore/kv_store.h"
#include "scheduler/stats.h"

namespace tandem {

// Hand-offs since the start.
struct HandoffCounts {
  uint64_t sent = 0;      // acknowledged by the peer
  uint64_t received = 0;  // complete and verified
  uint64_t retried = 0;   // streams that were opened again after a loss
  uint64_t lapsed = 0;    // reservations whose lease or deadline ended
  uint64_t refused = 0;   // reservations for which there was no room in time
};

// A snapshot for status pages, heartbeats and tests. `kv.free_blocks` are in no sequence, nor
// cached.
struct EngineStats {
  bool starting = true;  // weights load, or what steps would do once is done ahead: answers wait
  SchedulerStats scheduler;
  KvStats kv;
  int32_t most_used_blocks = 0;       // that sequences held at any time since the start
  double fragmentation = 0;           // share of the slots in sequences' blocks that hold no token
  int32_t reservations = 0;           // KV awaited
  int32_t waiting_reservations = 0;   // for room
  int32_t draining_reservations = 0;  // of these: given up while a payload was being written
  int32_t handoffs = 0;               // KV being sent, or about to be
  HandoffCounts handoff_counts;
  uint64_t requests_accepted = 0;
  uint64_t requests_finished = 0;  // with any status
  uint64_t prompt_tokens = 0;      // computed
  uint64_t output_tokens = 0;      // sampled
  uint64_t steps = 0;
  uint64_t host_copied_blocks = 0;  // between device and host, in both directions
  Duration host_copy_time{};        // ... and how long these copies ran
  uint64_t kv_bytes_sent = 0;
  uint64_t kv_bytes_received = 0;
};

}  // namespace tandem
