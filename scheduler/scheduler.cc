#include "scheduler/scheduler.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/status.h"
#include "scheduler/policy/policies.h"

namespace tandem {

Scheduler::Scheduler(const SchedulerOptions& options, const StepLearner& latency)
    : options_(options),
      book_(NewSchedulingPolicy(options.policy), options.max_wait),
      forecast_(options.block_tokens),
      planner_(options_, latency, forecast_, book_) {
  TANDEM_CHECK(options.Validate().ok(), "scheduler options were not validated");
}

absl::Status Scheduler::CheckFits(const SequenceSpec& spec) const {
  if (spec.prompt_tokens < 1 || spec.max_total_tokens < spec.prompt_tokens) {
    return InvalidArgument("a prompt of {} tokens that may grow to {}: needs 1 <= prompt <= total",
                           spec.prompt_tokens, spec.max_total_tokens);
  }
  const int32_t max_output = spec.max_total_tokens - spec.prompt_tokens;
  if (spec.emitted_tokens < 0 || spec.emitted_tokens > max_output) {
    return InvalidArgument(
        "{} output tokens were emitted before, and the sequence may have {}: at least one must be "
        "left to emit",
        spec.emitted_tokens, int64_t{max_output} + 1);
  }
  if (spec.emitted_tokens > 0 && spec.width != 1) {
    return InvalidArgument(
        "{} output tokens were emitted before in {} rows: a beam search begins at its prompt",
        spec.emitted_tokens, spec.width);
  }
  const int32_t max_width = std::min(options_.max_sequences, options_.max_step_tokens);
  if (spec.width < 1 || spec.width > max_width) {
    return InvalidArgument(
        "{} rows (choices or beams) for one request: at least 1, at most {}, which is the smaller "
        "of max_sequences={} and max_step_tokens={}",
        spec.width, max_width, options_.max_sequences, options_.max_step_tokens);
  }
  if (forecast_.MaxBlocks(spec) > options_.total_blocks) {
    return InvalidArgument(
        "{} tokens in all (prompt {}) in {} rows need {} KV blocks, the pool has {}: shorten the "
        "prompt or max_tokens, or ask for fewer choices or beams",
        spec.max_total_tokens, spec.prompt_tokens, spec.width, forecast_.MaxBlocks(spec),
        options_.total_blocks);
  }
  return absl::OkStatus();
}

absl::Status Scheduler::Enqueue(const SequenceSpec& spec, TimePoint now) {
  RETURN_IF_ERROR(CheckFits(spec));
  const int32_t waiting = book_.Count(Phase::kWaiting);
  if (waiting >= options_.max_waiting) {
    return ResourceExhausted("{} requests wait already, which is the limit: retry later", waiting);
  }
  book_.SetTime(now);
  book_.Add(spec, Phase::kWaiting);
  return absl::OkStatus();
}

absl::Status Scheduler::Reserve(const SequenceSpec& spec, const CacheView& view, TimePoint now) {
  RETURN_IF_ERROR(CheckFits(spec));
  book_.SetTime(now);
  const SequenceState newcomer = {.spec = spec,
                                  .known_tokens = spec.prompt_tokens,
                                  .order = std::numeric_limits<uint64_t>::max()};
  RETURN_IF_ERROR(CheckRoom(newcomer, view, now));
  book_.Add(spec, Phase::kParked);
  return absl::OkStatus();
}

// Checks that the newcomer has room beside the admitted sequences, and beside the swapped ones and
// the first waiting one that rank above it: these keep their claim, so that a series of
// reservations does not starve them.
absl::Status Scheduler::CheckRoom(const SequenceState& newcomer, const CacheView& view,
                                  TimePoint now) {
  const SequenceSpec& spec = newcomer.spec;
  int64_t rows = book_.rows();
  MemoryForecast memory = forecast_.OfAdmitted(book_, view);
  // The next tokens of running sequences count here, because their decodes have not taken blocks
  // from the view, in contrast to a step that is planned.
  for (const SequenceState& running : book_.InPhase(Phase::kRunning)) {
    memory.AddPending(view.BlocksToReach(running.spec.id, running.known_tokens));
  }
  for (const SequenceState& swapped : book_.InPhase(Phase::kSwapped)) {
    if (book_.queue().Outranks(newcomer, swapped)) continue;
    rows += swapped.spec.width;
    memory.AddPending(view.BlocksToSwapIn(swapped.spec.id));
    memory.Add(forecast_.Of(swapped));
  }
  const SequenceState* const head = book_.queue().FirstWaiting(now);
  if (head != nullptr && !book_.queue().Outranks(newcomer, *head)) {
    rows += head->spec.width;
    memory.AddPending(view.BlocksToReach(head->spec.id, head->known_tokens));
    memory.Add(forecast_.Of(*head));
  }
  if (rows + spec.width > options_.max_sequences) {
    return ResourceExhausted("{} of {} sequences are taken: retry later", rows,
                             options_.max_sequences);
  }
  memory.AddPending(view.BlocksToReach(spec.id, spec.prompt_tokens));
  const int64_t needed = memory.PeakGrowth(forecast_.Of(newcomer));
  if (needed > view.AvailableBlocks()) {
    return ResourceExhausted(
        "{} KV blocks would be needed beside the admitted and waiting sequences, {} of {} are "
        "available: retry later",
        needed, view.AvailableBlocks(), options_.total_blocks);
  }
  return absl::OkStatus();
}

void Scheduler::Activate(SequenceId id) {
  book_.Update(book_.Get(id, Phase::kParked), Phase::kRunning, [](SequenceState& sequence) {
    sequence.computed_tokens = sequence.spec.prompt_tokens;
    sequence.known_tokens = sequence.spec.prompt_tokens + 1;
  });
}

void Scheduler::TransferTo(SequenceId parked, const SequenceSpec& successor) {
  const SequenceBook::Entry before = book_.Get(parked, Phase::kParked);
  TANDEM_CHECK(CheckFits(successor).ok() &&
                   forecast_.MaxBlocks(successor) <= forecast_.MaxBlocks(before->spec) &&
                   successor.width <= before->spec.width,
               "the successor needs more than was reserved");
  const uint64_t order = before->order;
  book_.Remove(before);
  book_.Add(successor, Phase::kParked)->order = order;
}

void Scheduler::Evict(SequenceId id, TokensOf part, int32_t tokens) {
  book_.Evict(book_.Get(id, Phase::kRunning), part, tokens);
}

void Scheduler::Park(SequenceId id) { book_.Move(book_.Get(id, Phase::kRunning), Phase::kParked); }

void Scheduler::Fork(SequenceId parent, std::span<const SequenceId> children) {
  const SequenceBook::Entry forked = book_.Get(parent, Phase::kRunning);
  TANDEM_CHECK(forked->spec.width > static_cast<int64_t>(children.size()),
               "a sequence forks into more than its width");
  book_.Update(forked, Phase::kRunning, [](SequenceState& sequence) { sequence.spec.width = 1; });
  for (SequenceId id : children) {
    const SequenceBook::Entry child = book_.AddSibling(forked, id);
    child->shared_tokens = child->spec.prompt_tokens;
  }
}

void Scheduler::Resume(SequenceId parked, std::span<const Resumed> choices) {
  const SequenceBook::Entry root = book_.Get(parked, Phase::kParked);
  TANDEM_CHECK(
      !choices.empty() && choices.front().id == parked && root->spec.width >= std::ssize(choices),
      "a sequence resumes as itself first, and in no more parts than it is wide");
  book_.Update(root, Phase::kParked, [](SequenceState& sequence) { sequence.spec.width = 1; });
  for (const Resumed& choice : choices.subspan(1)) {
    book_.AddSibling(root, choice.id)->shared_tokens = choice.computed_tokens;
  }
  for (const Resumed& choice : choices) {
    book_.Update(book_.Get(choice.id, Phase::kParked), Phase::kPrefilling,
                 [&](SequenceState& sequence) {
                   sequence.computed_tokens = choice.computed_tokens;
                   sequence.known_tokens = sequence.spec.prompt_tokens + choice.emitted_tokens;
                   TANDEM_CHECK(sequence.computed_tokens < sequence.known_tokens,
                                "nothing is left to compute");
                 });
  }
}

void Scheduler::SwappedOut(SequenceId id) {
  if (Contains(id)) book_.Move(book_.Get(id, Phase::kSwappingOut), Phase::kSwapped);
}

void Scheduler::SwappedIn(SequenceId id) {
  if (Contains(id)) book_.Move(book_.Get(id, Phase::kSwappingIn), Phase::kRunning);
}

void Scheduler::SwapFailed(SequenceId id) {
  const SequenceBook::Entry* const found = book_.Find(id);
  if (found == nullptr) return;
  const Phase phase = (*found)->phase;
  TANDEM_CHECK(
      phase == Phase::kSwappingOut || phase == Phase::kSwapped || phase == Phase::kSwappingIn,
      "the swap of a sequence failed that was not swapped");
  book_.Restart(*found);
}

StepPlan Scheduler::Plan(TimePoint now, const CacheView& view) { return planner_.Plan(now, view); }

void Scheduler::Advance(const StepPlan& plan) {
  for (SequenceId id : plan.decodes) {
    const SequenceBook::Entry* const found = book_.Find(id);
    if (found == nullptr) continue;
    TANDEM_CHECK((*found)->phase == Phase::kRunning, "advanced by a plan that is not the latest");
    book_.CountDecoded(*found);
  }
  for (const PrefillChunk& chunk : plan.prefills) AdvanceChunk(chunk);
}

void Scheduler::AdvanceChunk(const PrefillChunk& chunk) {
  const SequenceBook::Entry* const found = book_.Find(chunk.id);
  if (found == nullptr) return;
  const SequenceBook::Entry sequence = *found;
  TANDEM_CHECK(sequence->phase == Phase::kPrefilling && sequence->computed_tokens == chunk.begin,
               "advanced by a plan that is not the latest");
  if (!chunk.last) return book_.CountComputed(sequence, chunk.count);
  book_.Update(sequence, Phase::kRunning, [&](SequenceState& state) {
    state.computed_tokens += chunk.count;
    ++state.known_tokens;
  });
}

void Scheduler::Finish(SequenceId id) {
  const SequenceBook::Entry* const found = book_.Find(id);
  if (found == nullptr) return;
  if ((*found)->phase == Phase::kRunning) forecast_.ObserveEnd(**found);
  book_.Remove(*found);
}

SchedulerStats Scheduler::stats() const {
  SchedulerStats stats = book_.stats();
  for (const SequenceState& running : book_.InPhase(Phase::kRunning)) {
    const int64_t rows = running.spec.width;
    stats.decode_context_tokens += rows * running.known_tokens;
    stats.expected_decode_tokens += rows * forecast_.TokensLeft(running);
  }
  planner_.AddCounts(stats);
  return stats;
}

}  // namespace tandem
