#include "scheduler/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "base/status.h"
#include "scheduler/policy/policies.h"

namespace tandem {
namespace {

bool IsQueued(Phase phase) { return phase == Phase::kWaiting || phase == Phase::kPrefilling; }

bool HoldsRows(Phase phase) {
  return phase == Phase::kPrefilling || phase == Phase::kRunning || phase == Phase::kParked ||
         phase == Phase::kSwappingIn;
}

}  // namespace

absl::Status SchedulerOptions::Validate() const {
  const auto at_least = [](const char* field, int32_t value, int32_t min) {
    if (value >= min) return absl::OkStatus();
    return InvalidArgument("scheduler: {}={}: must be at least {}", field, value, min);
  };
  RETURN_IF_ERROR(at_least("max_step_tokens", max_step_tokens, 1));
  RETURN_IF_ERROR(at_least("max_prefill_chunk", max_prefill_chunk, 0));
  RETURN_IF_ERROR(at_least("max_sequences", max_sequences, 1));
  RETURN_IF_ERROR(at_least("max_waiting", max_waiting, 1));
  RETURN_IF_ERROR(at_least("total_blocks", total_blocks, 1));
  RETURN_IF_ERROR(at_least("block_tokens", block_tokens, 1));
  RETURN_IF_ERROR(at_least("max_skips", max_skips, 0));
  if (max_wait > Duration::zero() && max_wait <= std::chrono::hours(24 * 365)) {
    return absl::OkStatus();
  }
  return InvalidArgument("scheduler: max_wait={} ms: must be above 0 and at most a year",
                         ToMilliseconds(max_wait));
}

Scheduler::Scheduler(const SchedulerOptions& options, const LatencyModel& latency)
    : options_(options),
      latency_(latency),
      order_(NewSchedulingPolicy(options.policy), options.max_wait) {
  TANDEM_CHECK(options.Validate().ok(), "scheduler options were not validated");
}

absl::Status Scheduler::CheckFits(const SequenceSpec& spec) const {
  if (spec.prompt_tokens < 1 || spec.max_total_tokens < spec.prompt_tokens) {
    return InvalidArgument("a prompt of {} tokens that may grow to {}: needs 1 <= prompt <= total",
                           spec.prompt_tokens, spec.max_total_tokens);
  }
  if (spec.said_tokens < 0 || spec.said_tokens > spec.max_total_tokens - spec.prompt_tokens ||
      (spec.said_tokens > 0 && spec.width != 1)) {
    return InvalidArgument(
        "{} tokens said before in {} rows, of at most {}: beams begin anew, and one token is left "
        "to say",
        spec.said_tokens, spec.width, spec.max_total_tokens - spec.prompt_tokens);
  }
  const int32_t max_width = std::min(options_.max_sequences, options_.max_step_tokens);
  if (spec.width < 1 || spec.width > max_width) {
    return InvalidArgument(
        "{} rows (choices or beams) for one request: at least 1, at most {}, which is the smaller "
        "of max_sequences={} and max_step_tokens={}",
        spec.width, max_width, options_.max_sequences, options_.max_step_tokens);
  }
  if (MostBlocks(spec) > options_.total_blocks) {
    return InvalidArgument(
        "{} tokens in all (prompt {}) in {} rows need {} KV blocks, the pool has {}: shorten the "
        "prompt or max_tokens, or ask for fewer choices or beams",
        spec.max_total_tokens, spec.prompt_tokens, spec.width, MostBlocks(spec),
        options_.total_blocks);
  }
  return absl::OkStatus();
}

Scheduler::Place Scheduler::Find(SequenceId id, Phase phase) {
  const auto place = sequences_.find(id);
  TANDEM_CHECK(place != sequences_.end() && place->second->phase == phase,
               "a sequence is not in the phase that its caller takes it to be in");
  return place->second;
}

Scheduler::Place Scheduler::Add(const SequenceSpec& spec, Phase phase) {
  const Place added =
      phases_[0].insert(phases_[0].end(), {.spec = spec,
                                           .known_tokens = spec.prompt_tokens + spec.said_tokens,
                                           .order = next_order_++,
                                           .enqueued = now_});
  TANDEM_CHECK(sequences_.emplace(spec.id, added).second, "a sequence id is used twice");
  if (spec.deadline != kNoDeadline) deadlines_.emplace(spec.deadline, spec.id);
  Enter(added, phase);
  return added;
}

void Scheduler::Remove(Place sequence) {
  Leave(*sequence);
  deadlines_.erase({sequence->spec.deadline, sequence->spec.id});
  sequences_.erase(sequence->spec.id);
  InPhase(sequence->phase).erase(sequence);
}

void Scheduler::Leave(SequenceState& sequence) {
  if (IsQueued(sequence.phase)) {
    order_.Remove(sequence, now_);
    backlog_tokens_ -= sequence.known_tokens - sequence.computed_tokens;
  }
  if (HoldsRows(sequence.phase)) rows_ -= sequence.spec.width;
}

void Scheduler::Enter(Place sequence, Phase phase) {
  Sequences& to = InPhase(phase);
  to.splice(to.end(), InPhase(sequence->phase), sequence);
  sequence->phase = phase;
  if (HoldsRows(phase)) rows_ += sequence->spec.width;
  if (IsQueued(phase)) {
    order_.Add(*sequence, now_);
    backlog_tokens_ += sequence->known_tokens - sequence->computed_tokens;
  }
}

void Scheduler::Move(Place sequence, Phase phase) {
  Leave(*sequence);
  Enter(sequence, phase);
}

// Beams hang together by more than their tokens: they cannot be taken up where they were.
void Scheduler::ComputeAgain(Place sequence) {
  Leave(*sequence);
  sequence->computed_tokens = 0;
  sequence->shared_tokens = 0;
  if (sequence->spec.width > 1) sequence->known_tokens = sequence->spec.prompt_tokens;
  Enter(sequence, Phase::kWaiting);
}

absl::Status Scheduler::Enqueue(const SequenceSpec& spec, TimePoint now) {
  RETURN_IF_ERROR(CheckFits(spec));
  if (Count(Phase::kWaiting) >= options_.max_waiting) {
    return ResourceExhausted("{} requests wait already, which is the limit: retry later",
                             Count(Phase::kWaiting));
  }
  now_ = now;
  Add(spec, Phase::kWaiting);
  return absl::OkStatus();
}

// What stands before this one keeps its claim: a run of reservations must not starve it.
absl::Status Scheduler::Reserve(const SequenceSpec& spec, const CacheView& view, TimePoint now) {
  RETURN_IF_ERROR(CheckFits(spec));
  now_ = now;
  const SequenceState candidate = {
      .spec = spec, .known_tokens = spec.prompt_tokens, .order = next_order_};
  int64_t rows = rows_;
  Outlook outlook = OutlookOfAdmitted(view);
  // No decode is planned here that took the blocks of the next tokens already.
  for (const SequenceState& running : InPhase(Phase::kRunning)) {
    outlook.owed += view.BlocksToReach(running.spec.id, running.known_tokens);
  }
  for (const SequenceState& swapped : InPhase(Phase::kSwapped)) {
    if (order_.Outranks(candidate, swapped)) continue;
    rows += swapped.spec.width;
    outlook.owed += view.BlocksToSwapIn(swapped.spec.id);
    outlook.Add(FutureOf(swapped));
  }
  if (const SequenceState* head = WaitingHead(); head && !order_.Outranks(candidate, *head)) {
    rows += head->spec.width;
    outlook.owed += view.BlocksToReach(head->spec.id, head->known_tokens);
    outlook.Add(FutureOf(*head));
  }
  if (rows + spec.width > options_.max_sequences) {
    return ResourceExhausted("{} of {} sequences are taken: retry later", rows,
                             options_.max_sequences);
  }
  outlook.owed += view.BlocksToReach(spec.id, spec.prompt_tokens);
  const int64_t needed = PeakGrowth(outlook, FutureOf(candidate));
  if (needed > view.AvailableBlocks()) {
    return ResourceExhausted(
        "{} KV blocks would be needed beside what is admitted and waits, {} of {} are available: "
        "retry later",
        needed, view.AvailableBlocks(), options_.total_blocks);
  }
  Add(spec, Phase::kParked);
  return absl::OkStatus();
}

const SequenceState* Scheduler::WaitingHead() {
  order_.Age(now_);
  order_.Rewind();
  const SequenceState* head = order_.Next(Turns::kAll);
  while (head != nullptr && head->phase != Phase::kWaiting) head = order_.Next(Turns::kAll);
  order_.Rewind();
  return head;
}

void Scheduler::Activate(SequenceId id) {
  const Place sequence = Find(id, Phase::kParked);
  sequence->computed_tokens = sequence->spec.prompt_tokens;
  sequence->known_tokens = sequence->spec.prompt_tokens + 1;
  Move(sequence, Phase::kRunning);
}

void Scheduler::PassOn(SequenceId parked, const SequenceSpec& heir) {
  const Place before = Find(parked, Phase::kParked);
  TANDEM_CHECK(CheckFits(heir).ok() && MostBlocks(heir) <= MostBlocks(before->spec) &&
                   heir.width <= before->spec.width,
               "the heir needs more than was reserved");
  const uint64_t order = before->order;
  Remove(before);
  Add(heir, Phase::kParked)->order = order;
}

void Scheduler::Park(SequenceId id) { Move(Find(id, Phase::kRunning), Phase::kParked); }

void Scheduler::Fork(SequenceId parent, std::span<const SequenceId> children) {
  const Place forked = Find(parent, Phase::kRunning);
  TANDEM_CHECK(forked->spec.width > static_cast<int64_t>(children.size()),
               "a sequence forks into more than its width");
  Leave(*forked);
  forked->spec.width = 1;
  Enter(forked, Phase::kRunning);
  for (SequenceId id : children) {
    SequenceSpec spec = forked->spec;
    spec.id = id;
    const Place child = Add(spec, Phase::kRunning);
    child->computed_tokens = forked->computed_tokens;
    child->known_tokens = forked->known_tokens;
    child->shared_tokens = spec.prompt_tokens;
    child->order = forked->order;
    child->enqueued = forked->enqueued;
    child->waited = forked->waited;
    child->aged = forked->aged;
  }
}

void Scheduler::Resume(SequenceId parked, std::span<const Resumed> choices) {
  const Place root = Find(parked, Phase::kParked);
  TANDEM_CHECK(
      !choices.empty() && choices.front().id == parked && root->spec.width >= std::ssize(choices),
      "a sequence goes on as itself and at most as many as it is wide");
  Leave(*root);
  root->spec.width = 1;
  Enter(root, Phase::kParked);
  for (const Resumed& choice : choices) {
    Place one = root;
    if (choice.id != parked) {
      SequenceSpec spec = root->spec;
      spec.id = choice.id;
      one = Add(spec, Phase::kParked);
      one->shared_tokens = choice.computed_tokens;
      one->order = root->order;
      one->enqueued = root->enqueued;
      one->waited = root->waited;
      one->aged = root->aged;
    }
    Leave(*one);
    one->computed_tokens = choice.computed_tokens;
    one->known_tokens = one->spec.prompt_tokens + choice.said_tokens;
    TANDEM_CHECK(one->computed_tokens < one->known_tokens, "nothing is left to compute");
    Enter(one, Phase::kPrefilling);
  }
}

void Scheduler::SwappedOut(SequenceId id) {
  if (Contains(id)) Move(Find(id, Phase::kSwappingOut), Phase::kSwapped);
}

void Scheduler::SwappedIn(SequenceId id) {
  if (Contains(id)) Move(Find(id, Phase::kSwappingIn), Phase::kRunning);
}

void Scheduler::SwapFailed(SequenceId id) {
  const auto place = sequences_.find(id);
  if (place == sequences_.end()) return;
  const Phase phase = place->second->phase;
  TANDEM_CHECK(
      phase == Phase::kSwappingOut || phase == Phase::kSwapped || phase == Phase::kSwappingIn,
      "the swap of a sequence failed that was not swapped");
  ComputeAgain(place->second);
}

void Scheduler::Finish(SequenceId id) {
  const auto place = sequences_.find(id);
  if (place == sequences_.end()) return;
  const SequenceState& sequence = *place->second;
  if (sequence.phase == Phase::kRunning) {
    expected_output_.Observe(sequence.known_tokens - sequence.spec.prompt_tokens,
                             sequence.spec.max_total_tokens + 1 - sequence.spec.prompt_tokens);
  }
  Remove(place->second);
}

TimePoint Scheduler::NextDeadline() const {
  return deadlines_.empty() ? kNoDeadline : deadlines_.begin()->first;
}

SchedulerStats Scheduler::stats() const {
  return {
      .waiting = Count(Phase::kWaiting),
      .prefilling = Count(Phase::kPrefilling),
      .running = Count(Phase::kRunning),
      .parked = Count(Phase::kParked),
      .swapped = Count(Phase::kSwappingOut) + Count(Phase::kSwapped) + Count(Phase::kSwappingIn),
      .waiting_prompt_tokens = backlog_tokens_,
      .preempted_recompute = preempted_recompute_,
      .preempted_swap = preempted_swap_};
}

}  // namespace tandem
