// One step: who decodes, who comes back from the host, who prefills how much.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace tandem {
namespace {

// So many turns of a walk may come to nothing, once the step has something to compute: a long queue
// of which nothing fits is not looked through in every step.
constexpr int32_t kMaxFruitless = 16;

}  // namespace

StepPlan Scheduler::Plan(TimePoint now, const CacheView& view) {
  now_ = now;
  Step step = {.view = view, .tokens = options_.max_step_tokens, .blocks = view.AvailableBlocks()};
  ExpirePassed(step);
  order_.Age(now);
  PlanDecodes(step);
  PlanSwapIns(step);
  PlanPrefills(step);
  if (step.plan.empty() && UnblockPrefills(step)) PlanPrefills(step);
  return std::move(step.plan);
}

// What these held comes free when the plan is carried out: not counted before.
void Scheduler::ExpirePassed(Step& step) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    const SequenceId id = deadlines_.begin()->second;
    step.plan.expired.push_back(id);
    Remove(sequences_.at(id));
  }
}

void Scheduler::PlanDecodes(Step& step) {
  std::vector<Want> wants;
  wants.reserve(InPhase(Phase::kRunning).size());
  int64_t blocks = 0;
  int32_t tokens = step.tokens;
  Sequences& running = InPhase(Phase::kRunning);
  for (Place one = running.begin(); one != running.end() && one->spec.width <= tokens; ++one) {
    tokens -= one->spec.width;
    wants.push_back({one, step.view.BlocksToReach(one->spec.id, one->known_tokens)});
    blocks += wants.back().blocks;
  }
  if (blocks > step.blocks) MakeRoom(step, wants);
  step.plan.decodes.reserve(wants.size());
  for (const Want& want : wants) {
    if (want.sequence->phase != Phase::kRunning || want.blocks > step.blocks) continue;
    step.blocks -= want.blocks;
    step.tokens -= want.sequence->spec.width;
    step.plan.decodes.push_back(want.sequence->spec.id);
    order_.Charge(*want.sequence, want.sequence->spec.width);
  }
}

bool Scheduler::NobodyComputes(const Step& step) const {
  return Count(Phase::kRunning) + Count(Phase::kPrefilling) + Count(Phase::kSwappingIn) == 0 &&
         step.plan.admitted.empty();
}

// While blocks run out nobody comes back. Who does needs room to grow, lest it goes again, unless
// it would be alone.
void Scheduler::PlanSwapIns(Step& step) {
  if (Count(Phase::kSwapped) + Count(Phase::kSwappingOut) == 0) return;
  std::vector<Place> swapped;
  Sequences& on_host = InPhase(Phase::kSwapped);
  for (Place one = on_host.begin(); one != on_host.end(); ++one) swapped.push_back(one);
  std::sort(swapped.begin(), swapped.end(),
            [this](Place a, Place b) { return order_.Outranks(*a, *b); });
  step.outlook = OutlookOfAdmitted(step.view);
  for (Place one : swapped) {
    const int32_t blocks = step.view.BlocksToSwapIn(one->spec.id);
    const Future future = FutureOf(*one);
    const bool fits = NobodyComputes(step)
                          ? blocks <= step.blocks
                          : blocks + PeakGrowth(step.outlook, future) <= step.blocks;
    if (!fits || !step.plan.preempted.empty() || rows_ + one->spec.width > options_.max_sequences) {
      step.gate = &*one;
      break;
    }
    step.blocks -= blocks;
    step.outlook.Add(future);
    step.plan.swap_ins.push_back(one->spec.id);
    Move(one, Phase::kSwappingIn);
  }
  for (const SequenceState& one : InPhase(Phase::kSwappingOut)) {
    if (step.gate == nullptr || order_.Outranks(one, *step.gate)) step.gate = &one;
  }
}

// Nobody is admitted in a step that preempts or swaps in: for want of room in the one case; in both
// because blocks change hands, so that a cached prefix may not cost what the view says.
void Scheduler::PlanPrefills(Step& step) {
  step.rows = options_.max_sequences - rows_;
  step.turns = step.rows > 0 && step.plan.preempted.empty() && step.plan.swap_ins.empty()
                   ? Turns::kAll
                   : Turns::kPrefilling;
  if (step.turns == Turns::kAll && Count(Phase::kWaiting) > 0) {
    step.outlook = OutlookOfAdmitted(step.view);
  }
  order_.Rewind();
  while (step.tokens > 0) {
    const SequenceState* const next = order_.Next(step.turns);
    if (next == nullptr) break;
    SequenceState& sequence = *sequences_.at(next->spec.id);
    if (sequence.phase == Phase::kPrefilling) {
      PlanChunk(step, sequence, sequence.computed_tokens);
    } else {
      Consider(step, sequence);
    }
  }
  for (const Admission& admission : step.plan.admitted) Admit(admission);
}

// Between walks only: the order goes by the phase.
void Scheduler::Admit(const Admission& admission) {
  const Place sequence = Find(admission.id, Phase::kWaiting);
  Leave(*sequence);
  sequence->computed_tokens = admission.cached_tokens;
  sequence->skips = 0;
  sequence->restore_asked = false;
  Enter(sequence, Phase::kPrefilling);
}

int64_t Scheduler::BlocksTo(const Step& step, const SequenceState& sequence, int32_t end) const {
  if (&sequence == step.unattached) return BlocksAt(sequence.spec, sequence.known_tokens);
  return step.view.BlocksToReach(sequence.spec.id, end);
}

// The longest chunk from `begin` on for which there are tokens and blocks.
Scheduler::TokenRange Scheduler::FittingChunk(const Step& step, const SequenceState& sequence,
                                              int32_t begin) const {
  const int32_t max_chunk =
      options_.max_prefill_chunk > 0 ? options_.max_prefill_chunk : options_.max_step_tokens;
  const int32_t count = std::min({sequence.known_tokens - begin, step.tokens, max_chunk});
  const auto fits = [&](int32_t end) { return BlocksTo(step, sequence, end) <= step.blocks; };
  if (fits(begin + count)) return {begin, begin + count};
  int32_t end = begin;
  for (int32_t high = begin + count - 1; end < high;) {
    const int32_t middle = (end + high + 1) / 2;
    if (fits(middle)) {
      end = middle;
    } else {
      high = middle - 1;
    }
  }
  return {begin, end};
}

bool Scheduler::PlanChunk(Step& step, const SequenceState& sequence, int32_t begin) {
  const TokenRange chunk = FittingChunk(step, sequence, begin);
  if (chunk.end == chunk.begin) return false;
  const int64_t blocks = BlocksTo(step, sequence, chunk.end);
  step.blocks -= static_cast<int32_t>(blocks);
  if (sequence.phase == Phase::kPrefilling) step.outlook.owed -= blocks;
  step.tokens -= chunk.end - chunk.begin;
  step.plan.prefills.push_back({.id = sequence.spec.id,
                                .begin = chunk.begin,
                                .count = chunk.end - chunk.begin,
                                .last = chunk.end == sequence.known_tokens});
  order_.Charge(sequence, chunk.end - chunk.begin);
  return true;
}

// A cached prefix takes a block more than the tokens in it while the last of its blocks is copied:
// one alone in a pool that is too small for that computes its prefix again.
int32_t Scheduler::AttachedTokens(Step& step, const SequenceState& sequence,
                                  const CachedPrefix& prefix) const {
  const int32_t cached = prefix.device_tokens;
  if (cached == 0 || !NobodyComputes(step)) return cached;
  const bool fits = FittingChunk(step, sequence, cached).end > cached;
  if (fits || BlocksAt(sequence.spec, sequence.known_tokens) > step.blocks) return cached;
  step.unattached = &sequence;
  return 0;
}

// A turn of one that waits.
void Scheduler::Consider(Step& step, SequenceState& sequence) {
  const CachedPrefix prefix = step.view.Prefix(sequence.spec.id);
  TANDEM_CHECK(prefix.device_tokens < sequence.known_tokens, "nothing is left to compute");
  const bool attaches_beside_restore = prefix.device_tokens > 0 && !step.plan.restores.empty();
  if (prefix.pending || attaches_beside_restore || RestoresPrefix(step, sequence, prefix)) {
    return CountFruitless(step);
  }
  const int32_t cached = AttachedTokens(step, sequence, prefix);
  sequence.shared_tokens = cached;
  if (!HasRoomFor(step, sequence) || !PlanChunk(step, sequence, cached)) {
    return FindNoRoom(step, sequence);
  }
  step.plan.admitted.push_back({.id = sequence.spec.id, .cached_tokens = cached});
  step.attaches |= cached > 0;
  const PrefillChunk& chunk = step.plan.prefills.back();
  step.outlook.owed += BlocksTo(step, sequence, sequence.known_tokens) -
                       BlocksTo(step, sequence, chunk.begin + chunk.count);
  step.outlook.Add(FutureOf(sequence));
  step.rows -= sequence.spec.width;
  if (step.head != nullptr && ++step.head->skips >= options_.max_skips) {
    step.turns = Turns::kPrefilling;
  }
  if (step.rows == 0) step.turns = Turns::kPrefilling;
}

// A restore may evict what another is about to attach: a step does the one or the other. It needs
// room beside the prefix that it continues.
bool Scheduler::RestoresPrefix(Step& step, SequenceState& sequence,
                               const CachedPrefix& prefix) const {
  if (prefix.host_tokens == 0 || sequence.restore_asked || step.attaches) return false;
  const int32_t blocks =
      prefix.host_blocks + step.view.BlocksToReach(sequence.spec.id, prefix.device_tokens);
  if (blocks + PeakGrowth(step.outlook, {}) > step.blocks) return false;
  const std::optional<Duration> copy = latency_.Copy(prefix.host_blocks);
  const std::optional<Duration> compute =
      latency_.Prefill(prefix.device_tokens, prefix.device_tokens + prefix.host_tokens);
  if (!copy || !compute || *copy >= *compute) return false;
  sequence.restore_asked = true;
  step.blocks -= blocks;
  step.plan.restores.push_back(sequence.spec.id);
  return true;
}

bool Scheduler::HasRoomFor(const Step& step, const SequenceState& sequence) const {
  if (sequence.spec.width > step.rows) return false;
  if (step.gate != nullptr && !order_.Outranks(sequence, *step.gate)) return false;
  if (NobodyComputes(step)) return true;
  return BlocksTo(step, sequence, sequence.known_tokens) +
             PeakGrowth(step.outlook, FutureOf(sequence)) <=
         step.blocks;
}

void Scheduler::FindNoRoom(Step& step, SequenceState& sequence) {
  if (step.head == nullptr) step.head = &sequence;
  if (sequence.aged || step.head->skips >= options_.max_skips) step.turns = Turns::kPrefilling;
  CountFruitless(step);
}

void Scheduler::CountFruitless(Step& step) {
  if (++step.fruitless > kMaxFruitless && !step.plan.empty()) step.turns = Turns::kPrefilling;
}

void Scheduler::Advance(const StepPlan& plan) {
  for (SequenceId id : plan.decodes) AdvanceDecode(id);
  for (const PrefillChunk& chunk : plan.prefills) AdvanceChunk(chunk);
}

// Who had its turn goes to the end.
void Scheduler::AdvanceDecode(SequenceId id) {
  const auto place = sequences_.find(id);
  if (place == sequences_.end()) return;
  SequenceState& sequence = *place->second;
  TANDEM_CHECK(sequence.phase == Phase::kRunning, "advanced by a plan that is not the latest");
  sequence.computed_tokens = sequence.known_tokens++;
  Sequences& running = InPhase(Phase::kRunning);
  running.splice(running.end(), running, place->second);
}

void Scheduler::AdvanceChunk(const PrefillChunk& chunk) {
  const auto place = sequences_.find(chunk.id);
  if (place == sequences_.end()) return;
  SequenceState& sequence = *place->second;
  TANDEM_CHECK(sequence.phase == Phase::kPrefilling && sequence.computed_tokens == chunk.begin,
               "advanced by a plan that is not the latest");
  sequence.computed_tokens += chunk.count;
  backlog_tokens_ -= chunk.count;
  if (!chunk.last) return;
  Leave(sequence);
  ++sequence.known_tokens;
  Enter(place->second, Phase::kRunning);
}

}  // namespace tandem
