// Who gives way when blocks run out, and how.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace tandem {

Scheduler::Place Scheduler::LowestRanked() {
  Place lowest = InPhase(Phase::kRunning).end();
  bool found = false;
  for (Phase phase : {Phase::kRunning, Phase::kPrefilling}) {
    Sequences& all = InPhase(phase);
    for (Place one = all.begin(); one != all.end(); ++one) {
      if (!found || order_.Outranks(*lowest, *one)) lowest = one;
      found = true;
    }
  }
  TANDEM_CHECK(found, "nobody is there to be preempted");
  return lowest;
}

// Preempts from the bottom until the rest of `wants` fits: those that rank above have to wait at
// most for blocks that are on their way to the host. The last one is never preempted: it fits
// alone, so whatever it lacks is held by sequences that are parked or moving, and comes back.
void Scheduler::MakeRoom(Step& step, std::vector<Want>& wants) {
  int64_t missing = -step.blocks;
  for (const Want& want : wants) missing += want.blocks;
  for (const SequenceState& one : InPhase(Phase::kSwappingOut)) missing -= one.returning_blocks;
  while (missing > 0 && Count(Phase::kRunning) + Count(Phase::kPrefilling) > 1) {
    const Place victim = LowestRanked();
    missing -= step.view.BlocksGivenBack(victim->spec.id);
    const auto want = std::find_if(wants.begin(), wants.end(),
                                   [&](const Want& one) { return one.sequence == victim; });
    if (want != wants.end()) missing -= want->blocks;
    Preempt(step, victim);
  }
  if (missing > 0 && step.plan.preempted.empty()) CheckFitsAlone(step.view);
}

void Scheduler::CheckFitsAlone(const CacheView& view) {
  const int32_t held = view.BlocksGivenBack(LowestRanked()->spec.id);
  TANDEM_CHECK(view.AvailableBlocks() + held < options_.total_blocks,
               "a sequence that was taken in does not fit into an empty pool");
}

void Scheduler::Preempt(Step& step, Place victim) {
  const SequenceId id = victim->spec.id;
  const int32_t given_back = step.view.BlocksGivenBack(id);
  ++victim->preemptions;
  if (victim->phase == Phase::kRunning && SwapIsCheaper(*victim, step.view)) {
    ++preempted_swap_;
    victim->returning_blocks = given_back;
    step.plan.preempted.push_back({.id = id, .how = Preemption::How::kSwap});
    return Move(victim, Phase::kSwappingOut);
  }
  ++preempted_recompute_;
  step.blocks += given_back;
  step.plan.preempted.push_back({.id = id, .how = Preemption::How::kRecompute});
  ComputeAgain(victim);
}

// The copies there and back against computing it again, where each row has an output of its own.
bool Scheduler::SwapIsCheaper(const SequenceState& victim, const CacheView& view) const {
  const std::optional<int32_t> blocks = view.BlocksToSwapOut(victim.spec.id);
  if (!blocks) return false;
  const int32_t outputs = victim.known_tokens - victim.spec.prompt_tokens;
  const std::optional<Duration> copy = latency_.Copy(2 * *blocks);
  const std::optional<Duration> compute =
      latency_.Prefill(0, victim.spec.prompt_tokens + victim.spec.width * outputs);
  return copy && compute && *copy < *compute;
}

// Nothing can be computed because sequences that prefill hold all blocks between them: the highest
// ranked goes on at the cost of the lowest. Whether a chunk may fit now.
bool Scheduler::UnblockPrefills(Step& step) {
  Sequences& prefilling = InPhase(Phase::kPrefilling);
  const bool blocks_return = Count(Phase::kSwappingOut) + Count(Phase::kSwappingIn) > 0;
  if (prefilling.empty() || Count(Phase::kRunning) > 0 || blocks_return) return false;
  Place first = prefilling.begin();
  for (Place one = prefilling.begin(); one != prefilling.end(); ++one) {
    if (order_.Outranks(*one, *first)) first = one;
  }
  std::vector<Want> wants = {
      {first, step.view.BlocksToReach(first->spec.id, first->computed_tokens + 1)}};
  MakeRoom(step, wants);
  return !step.plan.preempted.empty();
}

}  // namespace tandem
