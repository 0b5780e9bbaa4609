#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model/step_learner.h"
#include "scheduler/scheduler.h"

namespace tandem {

// The copies of KV between device and host that the engine has started: swaps of preempted
// sequences, and probes, which are swaps that only measure how long a copy takes. The store copies
// on its own threads; Poll takes note of the copies that have ended and tells the scheduler.
// Thread: engine. Everything that the constructor takes must outlive it.
class HostCopies {
 public:
  HostCopies(KvStore& store, StepLearner& latency, Scheduler& scheduler)
      : store_(store), latency_(latency), scheduler_(scheduler) {}

  // Starts copying `blocks` blocks to the host and back, unless the pool has fewer.
  void StartProbe(int32_t blocks);
  bool probing() const { return probe_.has_value(); }

  // Starts copying the sequence's KV to the host, and takes its block tables. When it returns false
  // the copy could not be started and nothing has changed.
  bool SwapOut(Sequence& sequence);
  // Starts copying the KV of a swapped sequence back.
  void SwapIn(Sequence& sequence);
  // Call when the sequence ends: forgets its KV on the host, if it has any.
  void Drop(Sequence& sequence);

  // Handles the copies that have ended. Lets the store start copies ahead of evictions.
  void Poll();

  // Whether no sequence has KV on the host or on the way there or back.
  bool empty() const { return swaps_.empty(); }
  // The number of blocks copied between device and host since the start, in either direction, and
  // the time of these copies.
  uint64_t copied_blocks() const { return copied_blocks_; }
  Duration copy_time() const { return copy_time_; }

 private:
  void Handle(const KvCompletion& completion);
  void ContinueProbe(const KvCompletion& completion);

  KvStore& store_;
  StepLearner& latency_;
  Scheduler& scheduler_;
  absl::flat_hash_map<SwapId, Sequence*> swaps_;
  std::optional<SwapId> probe_;
  uint64_t copied_blocks_ = 0;
  Duration copy_time_{};
};

}  // namespace tandem
