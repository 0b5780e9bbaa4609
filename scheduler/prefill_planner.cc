#include "scheduler/prefill_planner.h"

#include <algorithm>
#include <optional>

#include "base/check.h"

namespace tandem {
namespace {

// The number of sequences that a step may fail to admit once it has something to compute. A long
// queue in which nothing fits is not searched to its end in every step.
constexpr int32_t kMaxFailedAttempts = 16;

}  // namespace

// A step that preempts, or that swaps a sequence in, admits no sequence. In both cases blocks
// change hands, so that attaching a cached prefix may cost other blocks than the view says; and a
// step that preempts has no room.
PrefillPlanner::PrefillPlanner(const SchedulerOptions& options, const StepLearner& latency,
                               const Forecast& forecast, SequenceBook& book, StepDraft& draft)
    : options_(options),
      latency_(latency),
      forecast_(forecast),
      book_(book),
      draft_(draft),
      rows_(options.max_sequences - book.rows()),
      filter_(rows_ > 0 && draft.plan.preempted.empty() && draft.plan.swap_ins.empty()
                  ? AdmissionFilter::kAll
                  : AdmissionFilter::kPrefillingOnly),
      memory_(filter_ == AdmissionFilter::kAll && book.Count(Phase::kWaiting) > 0
                  ? forecast.OfAdmitted(book, draft.view)
                  : MemoryForecast(options.block_tokens)) {}

void PrefillPlanner::Run() {
  AgingQueue& queue = book_.queue();
  queue.Rewind();
  while (draft_.tokens > 0) {
    const SequenceState* const next = queue.Next(filter_);
    if (next == nullptr) break;
    if (next->phase == Phase::kPrefilling) {
      PlanChunk(*next, next->computed_tokens);
    } else {
      TryAdmit(*book_.Get(next->spec.id, Phase::kWaiting));
    }
  }
  // The queue is ordered by phase, among others, so phases change only after the iteration over it.
  for (const Admission& admission : draft_.plan.admitted) Admit(admission);
}

void PrefillPlanner::Admit(const Admission& admission) {
  book_.Update(book_.Get(admission.id, Phase::kWaiting), Phase::kPrefilling,
               [&](SequenceState& sequence) {
                 sequence.computed_tokens = admission.cached_tokens;
                 sequence.skips = 0;
                 sequence.restore_requested = false;
               });
}

int64_t PrefillPlanner::BlocksToReach(const SequenceState& sequence, int32_t end) const {
  if (&sequence == ignores_prefix_) {
    return forecast_.BlocksAt(sequence.spec, sequence.known_tokens) +
           forecast_.KeptBlocks(sequence.spec);
  }
  return draft_.view.BlocksToReach(sequence.spec.id, end);
}

PrefillPlanner::TokenRange PrefillPlanner::FittingChunk(const SequenceState& sequence,
                                                        int32_t begin) const {
  const int32_t max_chunk =
      options_.max_prefill_chunk > 0 ? options_.max_prefill_chunk : options_.max_step_tokens;
  const int32_t count = std::min({sequence.known_tokens - begin, draft_.tokens, max_chunk});
  const auto fits = [&](int32_t end) { return BlocksToReach(sequence, end) <= draft_.blocks; };
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

bool PrefillPlanner::PlanChunk(const SequenceState& sequence, int32_t begin) {
  const TokenRange chunk = FittingChunk(sequence, begin);
  if (chunk.end == chunk.begin) return false;
  const int64_t blocks = BlocksToReach(sequence, chunk.end);
  draft_.blocks -= static_cast<int32_t>(blocks);
  if (sequence.phase == Phase::kPrefilling) memory_.AddPending(-blocks);
  draft_.tokens -= chunk.end - chunk.begin;
  draft_.plan.prefills.push_back({.id = sequence.spec.id,
                                  .begin = chunk.begin,
                                  .count = chunk.end - chunk.begin,
                                  .last = chunk.end == sequence.known_tokens});
  book_.queue().Charge(sequence, chunk.end - chunk.begin);
  return true;
}

// The number of cached tokens that the sequence attaches: all of its cached prefix or none. The
// last block of a cached prefix is copied when it is not full, so the prefix can need one block
// more than its tokens. A sequence that would be alone in a pool without that block computes its
// prefix again.
int32_t PrefillPlanner::TokensToAttach(const SequenceState& sequence, const CachedPrefix& prefix) {
  const int32_t cached = prefix.device_tokens;
  if (cached == 0 || !NoneComputes()) return cached;
  const bool fits = FittingChunk(sequence, cached).end > cached;
  const int64_t all_blocks = forecast_.BlocksAt(sequence.spec, sequence.known_tokens) +
                             forecast_.KeptBlocks(sequence.spec);
  if (fits || all_blocks > draft_.blocks) return cached;
  ignores_prefix_ = &sequence;
  return 0;
}

// Admits the sequence if it has room. A restore from the host may evict blocks that another
// sequence is about to attach, so a step either restores or attaches.
void PrefillPlanner::TryAdmit(SequenceState& sequence) {
  const CachedPrefix prefix = draft_.view.Prefix(sequence.spec.id);
  TANDEM_CHECK(prefix.device_tokens < sequence.known_tokens, "nothing is left to compute");
  const bool attaches_beside_restore = prefix.device_tokens > 0 && !draft_.plan.restores.empty();
  if (prefix.pending || attaches_beside_restore || RequestRestore(sequence, prefix)) {
    return CountFailedAttempt();
  }
  const int32_t cached = TokensToAttach(sequence, prefix);
  sequence.shared_tokens = cached;
  if (!HasRoomFor(sequence) || !PlanChunk(sequence, cached)) return NoteNoRoom(sequence);
  draft_.plan.admitted.push_back({.id = sequence.spec.id, .cached_tokens = cached});
  attaches_ |= cached > 0;
  const PrefillChunk& chunk = draft_.plan.prefills.back();
  memory_.AddPending(BlocksToReach(sequence, sequence.known_tokens) -
                     BlocksToReach(sequence, chunk.begin + chunk.count));
  memory_.Add(forecast_.Of(sequence));
  rows_ -= sequence.spec.width;
  if (first_without_room_ != nullptr && ++first_without_room_->skips >= options_.max_skips) {
    filter_ = AdmissionFilter::kPrefillingOnly;
  }
  if (rows_ == 0) filter_ = AdmissionFilter::kPrefillingOnly;
}

// Requests that the sequence's prefix is copied from the host, where that is cheaper than computing
// it. The restored blocks need room beside the cached prefix on the device that they continue.
bool PrefillPlanner::RequestRestore(SequenceState& sequence, const CachedPrefix& prefix) {
  if (prefix.host_tokens == 0 || sequence.restore_requested || attaches_) return false;
  const int32_t blocks =
      prefix.host_blocks + draft_.view.BlocksToReach(sequence.spec.id, prefix.device_tokens);
  if (blocks + memory_.PeakGrowth() > draft_.blocks) return false;
  const std::optional<Duration> copy = latency_.Copy(prefix.host_blocks);
  const std::optional<Duration> compute =
      latency_.Prefill(prefix.device_tokens, prefix.device_tokens + prefix.host_tokens);
  if (!copy || !compute || *copy >= *compute) return false;
  sequence.restore_requested = true;
  draft_.blocks -= blocks;
  draft_.plan.restores.push_back(sequence.spec.id);
  return true;
}

bool PrefillPlanner::HasRoomFor(const SequenceState& sequence) const {
  if (sequence.spec.width > rows_) return false;
  const SequenceState* const swapped = draft_.highest_swapped;
  if (swapped != nullptr && !book_.queue().Outranks(sequence, *swapped)) return false;
  if (NoneComputes()) return true;
  return BlocksToReach(sequence, sequence.known_tokens) +
             memory_.PeakGrowth(forecast_.Of(sequence)) <=
         draft_.blocks;
}

void PrefillPlanner::NoteNoRoom(SequenceState& sequence) {
  if (first_without_room_ == nullptr) first_without_room_ = &sequence;
  if (sequence.aged || first_without_room_->skips >= options_.max_skips) {
    filter_ = AdmissionFilter::kPrefillingOnly;
  }
  CountFailedAttempt();
}

void PrefillPlanner::CountFailedAttempt() {
  if (++failed_attempts_ > kMaxFailedAttempts && !draft_.plan.empty()) {
    filter_ = AdmissionFilter::kPrefillingOnly;
  }
}

}  // namespace tandem
