#include "scheduler/preempter.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace tandem {

SequenceBook::Entry Preempter::LowestRanked() {
  SequenceBook::Entry lowest = book_.InPhase(Phase::kRunning).end();
  bool found = false;
  for (Phase phase : {Phase::kRunning, Phase::kPrefilling}) {
    SequenceBook::Sequences& all = book_.InPhase(phase);
    for (SequenceBook::Entry one = all.begin(); one != all.end(); ++one) {
      if (!found || book_.queue().Outranks(*lowest, *one)) lowest = one;
      found = true;
    }
  }
  TANDEM_CHECK(found, "there is no sequence to preempt");
  return lowest;
}

// Preempts from the lowest rank upwards. The highest ranked sequence is never preempted: it fits
// into the pool alone, so the blocks that it lacks are held by sequences that are parked or being
// copied, and will be freed.
void Preempter::MakeRoom(StepDraft& draft, const std::vector<BlockDemand>& demands) {
  int64_t missing = -draft.blocks;
  for (const BlockDemand& demand : demands) missing += demand.blocks;
  for (const SequenceState& one : book_.InPhase(Phase::kSwappingOut)) {
    missing -= one.returning_blocks;
  }
  while (missing > 0 && book_.Count(Phase::kRunning) + book_.Count(Phase::kPrefilling) > 1) {
    const SequenceBook::Entry victim = LowestRanked();
    missing -= draft.view.BlocksFreedBy(victim->spec.id);
    const auto demand = std::find_if(demands.begin(), demands.end(), [&](const BlockDemand& one) {
      return one.sequence == victim;
    });
    if (demand != demands.end()) missing -= demand->blocks;
    Preempt(draft, victim);
  }
  if (missing > 0 && draft.plan.preempted.empty()) CheckFitsAlone(draft.view);
}

void Preempter::CheckFitsAlone(const CacheView& view) {
  const int32_t held = view.BlocksFreedBy(LowestRanked()->spec.id);
  TANDEM_CHECK(view.AvailableBlocks() + held < options_.total_blocks,
               "a sequence that was accepted does not fit into an empty pool");
}

void Preempter::Preempt(StepDraft& draft, SequenceBook::Entry victim) {
  const SequenceId id = victim->spec.id;
  const int32_t freed_blocks = draft.view.BlocksFreedBy(id);
  if (victim->phase == Phase::kRunning && SwapIsCheaper(*victim, draft.view)) {
    ++swapped_;
    victim->returning_blocks = freed_blocks;
    draft.plan.preempted.push_back({.id = id, .how = Preemption::How::kSwap});
    return book_.Move(victim, Phase::kSwappingOut);
  }
  ++recomputed_;
  draft.blocks += freed_blocks;
  draft.plan.preempted.push_back({.id = id, .how = Preemption::How::kRecompute});
  book_.Restart(victim);
}

// Whether copying the KV of the victim to the host and back takes less time than the prefill of all
// its known tokens, where each row has its own output.
bool Preempter::SwapIsCheaper(const SequenceState& victim, const CacheView& view) const {
  const std::optional<int32_t> blocks = view.BlocksToSwapOut(victim.spec.id);
  if (!blocks) return false;
  const int32_t prompt = victim.spec.evicted_tokens + victim.spec.prompt_tokens;
  const std::optional<Duration> copy = latency_.Copy(2 * *blocks);
  const std::optional<Duration> compute =
      latency_.Prefill(0, prompt + victim.spec.width * victim.num_output());
  return copy && compute && *copy < *compute;
}

bool Preempter::UnblockPrefills(StepDraft& draft) {
  SequenceBook::Sequences& prefilling = book_.InPhase(Phase::kPrefilling);
  const bool blocks_return = book_.Count(Phase::kSwappingOut) + book_.Count(Phase::kSwappingIn) > 0;
  if (prefilling.empty() || book_.Count(Phase::kRunning) > 0 || blocks_return) return false;
  SequenceBook::Entry first = prefilling.begin();
  for (SequenceBook::Entry one = prefilling.begin(); one != prefilling.end(); ++one) {
    if (book_.queue().Outranks(*one, *first)) first = one;
  }
  MakeRoom(draft, {{first, draft.view.BlocksToReach(first->spec.id, first->computed_tokens + 1)}});
  return !draft.plan.preempted.empty();
}

void Preempter::AddCounts(SchedulerStats& stats) const {
  stats.preempted_recompute = recomputed_;
  stats.preempted_swap = swapped_;
}

}  // namespace tandem
