#include "scheduler/step_planner.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/prefill_planner.h"

namespace tandem {

StepPlan StepPlanner::Plan(TimePoint now, const CacheView& view) {
  book_.SetTime(now);
  StepDraft draft = {
      .view = view, .tokens = options_.max_step_tokens, .blocks = view.AvailableBlocks()};
  RemoveExpired(draft);
  book_.queue().Age(now);
  PlanDecodes(draft);
  PlanSwapIns(draft);
  PlanPrefills(draft);
  if (draft.plan.empty() && preempter_.UnblockPrefills(draft)) PlanPrefills(draft);
  return std::move(draft.plan);
}

// Removes the sequences whose deadline has passed. Their blocks become free when the plan is
// carried out, so this step does not use them.
void StepPlanner::RemoveExpired(StepDraft& draft) {
  while (const std::optional<SequenceId> id = book_.RemoveExpired()) {
    draft.plan.expired.push_back(*id);
  }
}

void StepPlanner::PlanDecodes(StepDraft& draft) {
  std::vector<BlockDemand> demands;
  SequenceBook::Sequences& running = book_.InPhase(Phase::kRunning);
  demands.reserve(running.size());
  int64_t blocks = 0;
  int32_t tokens = draft.tokens;
  for (auto one = running.begin(); one != running.end() && one->spec.width <= tokens; ++one) {
    tokens -= one->spec.width;
    demands.push_back({one, draft.view.BlocksToReach(one->spec.id, one->known_tokens)});
    blocks += demands.back().blocks;
  }
  if (blocks > draft.blocks) preempter_.MakeRoom(draft, demands);
  draft.plan.decodes.reserve(demands.size());
  for (const BlockDemand& demand : demands) {
    const SequenceState& sequence = *demand.sequence;
    if (sequence.phase != Phase::kRunning || demand.blocks > draft.blocks) continue;
    draft.blocks -= demand.blocks;
    draft.tokens -= sequence.spec.width;
    draft.plan.decodes.push_back(sequence.spec.id);
    book_.queue().Charge(sequence, sequence.spec.width);
  }
}

// Plans which swapped sequences come back from the host: none while blocks run out. A sequence that
// comes back needs room to grow, unless it is alone; otherwise it would soon be preempted again.
void StepPlanner::PlanSwapIns(StepDraft& draft) {
  if (book_.Count(Phase::kSwapped) + book_.Count(Phase::kSwappingOut) == 0) return;
  const AgingQueue& queue = book_.queue();
  std::vector<SequenceBook::Entry> swapped;
  SequenceBook::Sequences& on_host = book_.InPhase(Phase::kSwapped);
  for (auto one = on_host.begin(); one != on_host.end(); ++one) swapped.push_back(one);
  std::sort(swapped.begin(), swapped.end(),
            [&](const auto& a, const auto& b) { return queue.Outranks(*a, *b); });
  MemoryForecast memory = forecast_.OfAdmitted(book_, draft.view);
  for (const SequenceBook::Entry one : swapped) {
    const int32_t blocks = draft.view.BlocksToSwapIn(one->spec.id);
    const SequenceForecast forecast = forecast_.Of(*one);
    const int64_t needed = book_.NoneComputes() ? blocks : blocks + memory.PeakGrowth(forecast);
    const bool has_row = book_.rows() + one->spec.width <= options_.max_sequences;
    if (needed > draft.blocks || !draft.plan.preempted.empty() || !has_row) {
      draft.highest_swapped = &*one;
      break;
    }
    draft.blocks -= blocks;
    memory.Add(forecast);
    draft.plan.swap_ins.push_back(one->spec.id);
    book_.Move(one, Phase::kSwappingIn);
  }
  for (const SequenceState& one : book_.InPhase(Phase::kSwappingOut)) {
    if (draft.highest_swapped == nullptr || queue.Outranks(one, *draft.highest_swapped)) {
      draft.highest_swapped = &one;
    }
  }
}

void StepPlanner::PlanPrefills(StepDraft& draft) {
  PrefillPlanner(options_, latency_, forecast_, book_, draft).Run();
}

}  // namespace tandem
