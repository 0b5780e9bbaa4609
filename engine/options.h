#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "kernels/op_args.h"
#include "kvstore/eviction_policy.h"
#include "kvstore/kv_layout.h"
#include "kvstore/kv_store.h"
#include "scheduler/options.h"

namespace tandem {

enum class Role : uint8_t { kUnified, kPrefill, kDecode };

struct EngineOptions {
  Role role = Role::kUnified;
  KvLayout layout;
  int32_t num_blocks = 0;  // of the KV pool; 0: as many as device_memory_fraction leaves
  // Of the memory of a device that is not the host, for weights, activations and KV together.
  double device_memory_fraction = 0.9;
  int64_t reserved_device_bytes = 0;  // of that memory: what the caller takes of it later
  int32_t max_context_tokens = 0;     // prompt and output together; at most the model's
  SchedulerOptions scheduler;         // total_blocks and block_tokens are set from the above
  uint64_t model_fingerprint = 0;
  uint64_t epoch = 0;  // unique per incarnation
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  EvictionKind eviction = EvictionKind::kLru;
  int64_t host_bytes = 0;  // budget of the host tier; 0: none
  size_t inbox_capacity = 4096;
  SplitMode splits = SplitMode::kBalanced;  // of attention; kFixed: no row sees its batch
  Duration reservation_lease = std::chrono::seconds(3);
  int32_t max_waiting_reservations = 256;  // for room; more are refused
  Duration max_reservation_wait = std::chrono::seconds(30);
  // Frames of peers with another layout that may be under way at once; each has room set aside, in
  // the device's memory, for the largest extent there is of this model. What comes beyond is sent
  // again. Role decode.
  int32_t conversion_slots = 32;
  // Layers of a chunk that have less KV wait for the next ones, all of a prompt's last chunk for
  // its first token: to post wakes the transport's thread, some 40 us of the engine's time on a
  // virtual machine, which short prompts would feel in their TTFT. Role prefill.
  int64_t least_post_bytes = int64_t{1} << 20;
  bool share_kv = false;  // the KV pool is memory that other processes can open (Device::Share)
  bool check_invariants = false;  // after every step; tests and debug builds
};

}  // namespace tandem
