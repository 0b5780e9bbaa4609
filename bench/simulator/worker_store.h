#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/ids.h"
#include "bench/simulator/kv_counts.h"
#include "engine/output_stream.h"
#include "engine/request.h"
#include "kvstore/prefix_key.h"
#include "scheduler/cache_view.h"

namespace tandem::simulator {

// One sequence of a simulated worker: the parts of engine/sequence.h that do not need tokens.
struct SimulatedSequence {
  // What every token looks at comes first: the sequences of a large fleet do not fit into the
  // processor's caches.
  SequenceId id;
  RequestId request;  // 0: blocks are reserved for it, and its request has not come yet
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;
  int32_t emitted = 0;    // output tokens that are known, those of other workers included
  bool admitted = false;  // it has blocks
  bool prefilled = false;
  OutputStream stream;
  KvCounts::Holding kv;

  PrefixKey key;                     // of the full blocks of the prompt
  std::optional<uint64_t> expected;  // the hash of the block that it computes next
  TimePoint accepted{};
  TimePoint prefill_began{};
  StageTimes stages;
  int32_t chunks = 0;  // steps that computed the prompt
  int32_t cached_tokens = 0;
  int32_t preemptions = 0;
  std::optional<HandoffTarget> target;  // its KV goes there after the prefill
  TimePoint deadline = kNoDeadline;     // of a request that decodes from a reservation
  bool resumes = false;                 // it continues after tokens that another worker emitted
};

inline int32_t KnownTokens(const SimulatedSequence& sequence) {
  return sequence.prompt_tokens + sequence.emitted;
}

// The sequences of one simulated worker and their blocks, as its scheduler sees them.
// Thread: one at a time.
class WorkerStore final : public CacheView {
 public:
  explicit WorkerStore(const KvCounts::Options& options) : kv_(options) {}

  int32_t AvailableBlocks() const override { return kv_.Available(); }
  int32_t BlocksToReach(SequenceId id, int32_t end) const override;
  int32_t BlocksFreedBy(SequenceId id) const override;
  // There is no host tier: what is preempted is computed again.
  std::optional<int32_t> BlocksToSwapOut(SequenceId) const override { return std::nullopt; }
  int32_t BlocksToSwapIn(SequenceId) const override { return 0; }
  CachedPrefix Prefix(SequenceId id) const override;

  SimulatedSequence& Add(std::unique_ptr<SimulatedSequence> sequence);
  // Null for unknown ids.
  SimulatedSequence* Find(SequenceId id) const;
  SimulatedSequence& Get(SequenceId id) const;
  void Rename(SimulatedSequence& sequence, SequenceId id);
  // Frees its blocks and forgets it.
  void Remove(SequenceId id);

  // The sequence takes the first `cached_tokens` tokens from the cache and computes the others.
  void Admit(SimulatedSequence& sequence, int32_t cached_tokens);
  // The blocks of its first `tokens` tokens are taken.
  void Grow(SimulatedSequence& sequence, int64_t tokens);
  // The first `computed` tokens are computed; `more_follows`: it goes on with the prompt.
  void Computed(SimulatedSequence& sequence, int32_t computed, bool more_follows);
  void Release(SimulatedSequence& sequence);

  // Plans the blocks for a prompt that arrives from another worker, before the scheduler knows the
  // sequence `id`. Returns the cached tokens, which are whole blocks.
  int32_t PlanReservation(SequenceId id, const PrefixKey& key, int32_t prompt_tokens);
  // Takes the blocks of that prompt.
  void Reserve(SimulatedSequence& sequence, int32_t cached_tokens);

  const KvCounts& kv() const { return kv_; }
  bool empty() const { return sequences_.empty(); }

 private:
  void Attach(SimulatedSequence& sequence, int32_t cached_tokens);
  void SetExpected(SimulatedSequence& sequence, std::optional<uint64_t> hash);

  KvCounts kv_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<SimulatedSequence>> sequences_;
  SequenceId planned_;
  int32_t planned_blocks_ = 0;
};

}  // namespace tandem::simulator
