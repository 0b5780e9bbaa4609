#include "scheduler/scheduler.h"

#include <algorithm>
#include <cstddef>

#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "base/status.h"

namespace tandem {

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
  return at_least("block_tokens", block_tokens, 1);
}

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options) {
  TANDEM_CHECK(options.Validate().ok(), "scheduler options were not validated");
}

int32_t Scheduler::BlocksFor(const SequenceSpec& spec) const {
  const int64_t tokens = spec.max_total_tokens;
  return static_cast<int32_t>((tokens + options_.block_tokens - 1) / options_.block_tokens);
}

absl::Status Scheduler::CheckFits(const SequenceSpec& spec) const {
  if (spec.prompt_tokens < 1 || spec.max_total_tokens < spec.prompt_tokens) {
    return InvalidArgument("a prompt of {} tokens that may grow to {}: needs 1 <= prompt <= total",
                           spec.prompt_tokens, spec.max_total_tokens);
  }
  if (BlocksFor(spec) > options_.total_blocks) {
    return InvalidArgument(
        "{} tokens in all (prompt {}) need {} KV blocks, the pool has {}: shorten the prompt or "
        "max_tokens",
        spec.max_total_tokens, spec.prompt_tokens, BlocksFor(spec), options_.total_blocks);
  }
  return absl::OkStatus();
}

bool Scheduler::HasRoomFor(const SequenceSpec& spec) const {
  const int64_t admitted = static_cast<int64_t>(prefilling_.size() + running_.size()) + num_parked_;
  return admitted < options_.max_sequences &&
         promised_blocks_ + BlocksFor(spec) <= options_.total_blocks;
}

bool Scheduler::Precedes(SequenceId a, SequenceId b) const {
  const SequenceState& left = sequences_.at(a);
  const SequenceState& right = sequences_.at(b);
  if (left.spec.priority != right.spec.priority) return left.spec.priority > right.spec.priority;
  return left.arrival < right.arrival;
}

void Scheduler::InsertInOrder(std::vector<SequenceId>& queue, SequenceId id) const {
  const auto precedes = [this](SequenceId a, SequenceId b) { return Precedes(a, b); };
  queue.insert(std::upper_bound(queue.begin(), queue.end(), id, precedes), id);
}

void Scheduler::EraseInOrder(std::vector<SequenceId>& queue, SequenceId id) const {
  const auto precedes = [this](SequenceId a, SequenceId b) { return Precedes(a, b); };
  const auto place = std::lower_bound(queue.begin(), queue.end(), id, precedes);
  TANDEM_CHECK(place != queue.end() && *place == id, "a sequence is not in its queue");
  queue.erase(place);
}

SequenceState& Scheduler::Add(const SequenceSpec& spec, Phase phase) {
  const auto [place, added] = sequences_.try_emplace(
      spec.id, SequenceState{.spec = spec, .phase = phase, .arrival = next_arrival_++});
  TANDEM_CHECK(added, "a sequence id is used twice");
  if (spec.deadline != kNoDeadline) deadlines_.emplace(spec.deadline, spec.id);
  return place->second;
}

absl::Status Scheduler::Enqueue(const SequenceSpec& spec) {
  RETURN_IF_ERROR(CheckFits(spec));
  if (static_cast<int64_t>(waiting_.size()) >= options_.max_waiting) {
    return ResourceExhausted("{} requests wait already, which is the limit: retry later",
                             waiting_.size());
  }
  Add(spec, Phase::kWaiting);
  InsertInOrder(waiting_, spec.id);
  waiting_prompt_tokens_ += spec.prompt_tokens;
  return absl::OkStatus();
}

absl::Status Scheduler::Reserve(const SequenceSpec& spec) {
  RETURN_IF_ERROR(CheckFits(spec));
  // The head of the queue keeps its claim: a run of reservations must not starve it.
  int32_t claimed_blocks = promised_blocks_;
  int64_t claimed_places = static_cast<int64_t>(prefilling_.size() + running_.size()) + num_parked_;
  if (!waiting_.empty()) {
    const SequenceSpec& head = sequences_.at(waiting_.front()).spec;
    if (head.priority >= spec.priority) {
      claimed_blocks += BlocksFor(head);
      ++claimed_places;
    }
  }
  if (claimed_places >= options_.max_sequences) {
    return ResourceExhausted("{} of {} sequences are taken: retry later", claimed_places,
                             options_.max_sequences);
  }
  if (BlocksFor(spec) > options_.total_blocks - claimed_blocks) {
    return ResourceExhausted("{} KV blocks are needed, {} of {} are promised: retry later",
                             BlocksFor(spec), claimed_blocks, options_.total_blocks);
  }
  Add(spec, Phase::kParked);
  ++num_parked_;
  promised_blocks_ += BlocksFor(spec);
  return absl::OkStatus();
}

void Scheduler::Activate(SequenceId id) {
  const auto place = sequences_.find(id);
  TANDEM_CHECK(place != sequences_.end() && place->second.phase == Phase::kParked,
               "activated a sequence that is not parked");
  place->second.phase = Phase::kRunning;
  place->second.computed_tokens = place->second.spec.prompt_tokens;
  --num_parked_;
  running_.push_back(id);
}

void Scheduler::PassOn(SequenceId parked, const SequenceSpec& heir) {
  const auto place = sequences_.find(parked);
  TANDEM_CHECK(place != sequences_.end() && place->second.phase == Phase::kParked,
               "passed on the promise of a sequence that is not parked");
  TANDEM_CHECK(CheckFits(heir).ok() && BlocksFor(heir) <= BlocksFor(place->second.spec),
               "the heir needs more than was promised");
  Finish(parked);
  Add(heir, Phase::kParked);
  ++num_parked_;
  promised_blocks_ += BlocksFor(heir);
}

void Scheduler::Park(SequenceId id) {
  const auto place = sequences_.find(id);
  TANDEM_CHECK(place != sequences_.end() && place->second.phase == Phase::kRunning,
               "parked a sequence that does not run");
  place->second.phase = Phase::kParked;
  ++num_parked_;
  std::erase(running_, id);
}

StepPlan Scheduler::Plan(TimePoint now) {
  StepPlan plan;
  int32_t budget = options_.max_step_tokens;
  ExpirePassed(now, plan);
  PlanDecodes(plan, budget);
  PlanPrefills(plan, budget);
  return plan;
}

void Scheduler::ExpirePassed(TimePoint now, StepPlan& plan) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const SequenceId id = deadlines_.begin()->second;
    plan.expired.push_back(id);
    Finish(id);
  }
}

void Scheduler::PlanDecodes(StepPlan& plan, int32_t& budget) const {
  const auto count = std::min<int64_t>(budget, static_cast<int64_t>(running_.size()));
  plan.decodes.assign(running_.begin(), running_.begin() + count);
  budget -= static_cast<int32_t>(count);
}

// Merges the sequences already admitted with the queue, both in order, until the budget is spent.
// A head of the queue that has no room closes the queue, not the merge.
void Scheduler::PlanPrefills(StepPlan& plan, int32_t budget) {
  const int32_t max_chunk = options_.max_prefill_chunk > 0 ? options_.max_prefill_chunk : budget;
  size_t next = 0;  // in prefilling_
  size_t head = 0;  // in waiting_
  while (budget > 0) {
    const bool may_admit = head < waiting_.size() && HasRoomFor(sequences_.at(waiting_[head]).spec);
    if (may_admit && (next == prefilling_.size() || Precedes(waiting_[head], prefilling_[next]))) {
      SequenceState& state = sequences_.at(waiting_[head]);
      state.phase = Phase::kPrefilling;
      promised_blocks_ += BlocksFor(state.spec);
      plan.admitted.push_back(waiting_[head]);
      prefilling_.insert(prefilling_.begin() + static_cast<ptrdiff_t>(next), waiting_[head]);
      ++head;
    }
    if (next == prefilling_.size()) break;
    const SequenceState& state = sequences_.at(prefilling_[next++]);
    const int32_t left = state.spec.prompt_tokens - state.computed_tokens;
    const int32_t count = std::min({left, budget, max_chunk});
    plan.prefills.push_back({.id = state.spec.id,
                             .begin = state.computed_tokens,
                             .count = count,
                             .last = count == left});
    budget -= count;
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(head));
}

void Scheduler::Advance(const StepPlan& plan) {
  RotateRunning(plan);
  for (const PrefillChunk& chunk : plan.prefills) AdvanceChunk(chunk);
}

void Scheduler::AdvanceChunk(const PrefillChunk& chunk) {
  const auto place = sequences_.find(chunk.id);
  if (place == sequences_.end()) return;
  SequenceState& state = place->second;
  TANDEM_CHECK(state.phase == Phase::kPrefilling && state.computed_tokens == chunk.begin,
               "advanced by a plan that is not the latest");
  state.computed_tokens += chunk.count;
  waiting_prompt_tokens_ -= chunk.count;
  if (!chunk.last) return;
  EraseInOrder(prefilling_, chunk.id);
  state.phase = Phase::kRunning;
  running_.push_back(chunk.id);
}

// Who had no turn in this step comes first in the next.
void Scheduler::RotateRunning(const StepPlan& plan) {
  size_t decoded = 0;
  while (decoded < plan.decodes.size() && decoded < running_.size() &&
         running_[decoded] == plan.decodes[decoded]) {
    ++decoded;
  }
  if (decoded == running_.size()) return;
  const absl::flat_hash_set<SequenceId> had_turn(plan.decodes.begin(), plan.decodes.end());
  std::stable_partition(running_.begin(), running_.end(),
                        [&](SequenceId id) { return !had_turn.contains(id); });
}

void Scheduler::Finish(SequenceId id) {
  const auto place = sequences_.find(id);
  if (place == sequences_.end()) return;
  const SequenceState& state = place->second;
  switch (state.phase) {
    case Phase::kWaiting:
      EraseInOrder(waiting_, id);
      break;
    case Phase::kPrefilling:
      EraseInOrder(prefilling_, id);
      break;
    case Phase::kRunning:
      std::erase(running_, id);
      break;
    case Phase::kParked:
      --num_parked_;
      break;
  }
  if (state.phase == Phase::kWaiting || state.phase == Phase::kPrefilling) {
    waiting_prompt_tokens_ -= state.spec.prompt_tokens - state.computed_tokens;
  }
  if (state.phase != Phase::kWaiting) promised_blocks_ -= BlocksFor(state.spec);
  deadlines_.erase({state.spec.deadline, id});
  sequences_.erase(place);
}

TimePoint Scheduler::NextDeadline() const {
  return deadlines_.empty() ? kNoDeadline : deadlines_.begin()->first;
}

bool Scheduler::HasWork() const {
  if (!running_.empty() || !prefilling_.empty()) return true;
  return !waiting_.empty() && HasRoomFor(sequences_.at(waiting_.front()).spec);
}

SchedulerStats Scheduler::stats() const {
  return {.waiting = static_cast<int32_t>(waiting_.size()),
          .prefilling = static_cast<int32_t>(prefilling_.size()),
          .running = static_cast<int32_t>(running_.size()),
          .parked = num_parked_,
          .waiting_prompt_tokens = waiting_prompt_tokens_,
          .promised_blocks = promised_blocks_};
}

absl::Status Scheduler::CheckInvariants() const {
  int64_t promised = 0;
  int64_t prompt_tokens = 0;
  size_t deadlines = 0;
  absl::flat_hash_map<Phase, size_t> count;
  for (const auto& [id, state] : sequences_) {
    ++count[state.phase];
    const int32_t left = state.spec.prompt_tokens - state.computed_tokens;
    if (state.phase != Phase::kWaiting) promised += BlocksFor(state.spec);
    if (state.phase == Phase::kWaiting || state.phase == Phase::kPrefilling) prompt_tokens += left;
    if (state.phase == Phase::kPrefilling && left < 1) {
      return Internal("sequence {} prefills, but nothing of its prompt is left", id);
    }
    if (state.spec.deadline != kNoDeadline) ++deadlines;
  }
  const auto check = [](const char* what, int64_t is, int64_t counted) {
    if (is == counted) return absl::OkStatus();
    return Internal("{}: {} by the sequences, {} counted", what, is, counted);
  };
  RETURN_IF_ERROR(check("waiting", count[Phase::kWaiting], waiting_.size()));
  RETURN_IF_ERROR(check("prefilling", count[Phase::kPrefilling], prefilling_.size()));
  RETURN_IF_ERROR(check("running", count[Phase::kRunning], running_.size()));
  RETURN_IF_ERROR(check("parked", count[Phase::kParked], num_parked_));
  RETURN_IF_ERROR(check("promised blocks", promised, promised_blocks_));
  RETURN_IF_ERROR(check("waiting prompt tokens", prompt_tokens, waiting_prompt_tokens_));
  RETURN_IF_ERROR(check("deadlines", deadlines, deadlines_.size()));
  RETURN_IF_ERROR(CheckQueue(waiting_, Phase::kWaiting));
  RETURN_IF_ERROR(CheckQueue(prefilling_, Phase::kPrefilling));
  RETURN_IF_ERROR(CheckQueue(running_, Phase::kRunning));
  if (promised_blocks_ > options_.total_blocks) {
    return Internal("{} blocks are promised, there are {}", promised_blocks_,
                    options_.total_blocks);
  }
  return absl::OkStatus();
}

absl::Status Scheduler::CheckQueue(const std::vector<SequenceId>& queue, Phase phase) const {
  for (size_t i = 0; i < queue.size(); ++i) {
    const auto place = sequences_.find(queue[i]);
    if (place == sequences_.end() || place->second.phase != phase) {
      return Internal("sequence {} stands in the queue of another phase", queue[i]);
    }
    if (phase != Phase::kRunning && i > 0 && !Precedes(queue[i - 1], queue[i])) {
      return Internal("sequence {} is out of order", queue[i]);
    }
  }
  return absl::OkStatus();
}

}  // namespace tandem
