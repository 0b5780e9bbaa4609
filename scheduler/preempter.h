#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/cache_view.h"
#include "scheduler/latency_model/step_learner.h"
#include "scheduler/options.h"
#include "scheduler/sequence_book.h"
#include "scheduler/stats.h"
#include "scheduler/step_draft.h"

namespace tandem {

// A sequence and the blocks that its next tokens need.
struct BlockDemand {
  SequenceBook::Entry sequence;
  int32_t blocks = 0;
};

// Decides which sequences are preempted when blocks run out: the lowest ranked ones. A preempted
// sequence is computed again later, or its KV is copied to the host and back, whichever is expected
// to take less time.
// Thread: engine. Everything that the constructor takes must outlive it.
class Preempter {
 public:
  Preempter(const SchedulerOptions& options, const StepLearner& latency, SequenceBook& book)
      : options_(options), latency_(latency), book_(book) {}

  // Preempts from the lowest rank upwards until the demands of the sequences that remain fit into
  // the blocks of the draft, counting the blocks that copies to the host will free.
  void MakeRoom(StepDraft& draft, const std::vector<BlockDemand>& demands);

  // For a step that computes nothing because prefilling sequences hold all blocks between them:
  // preempts the lowest ranked sequence so that the highest ranked one can continue. Returns
  // whether it did.
  bool UnblockPrefills(StepDraft& draft);

  // Sets those fields of `stats` that count preemptions.
  void AddCounts(SchedulerStats& stats) const;

 private:
  SequenceBook::Entry LowestRanked();
  void CheckFitsAlone(const CacheView& view);
  void Preempt(StepDraft& draft, SequenceBook::Entry victim);
  bool SwapIsCheaper(const SequenceState& victim, const CacheView& view) const;

  const SchedulerOptions& options_;
  const StepLearner& latency_;
  SequenceBook& book_;
  uint64_t recomputed_ = 0;
  uint64_t swapped_ = 0;
};

}  // namespace tandem
