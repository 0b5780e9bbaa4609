#include <algorithm>
#include <vector>

#include "base/status.h"
#include "scheduler/scheduler.h"

namespace tandem {
namespace {

absl::Status CheckCounts(const SequenceState& one, int32_t max_total) {
  const SequenceId id = one.spec.id;
  if (one.computed_tokens < 0 || one.known_tokens > max_total + 1) {
    return Internal("sequence {}: {} tokens computed, {} known, {} at most", id,
                    one.computed_tokens, one.known_tokens, max_total);
  }
  const int32_t left = one.known_tokens - one.computed_tokens;
  if (one.phase == Phase::kRunning && left != 1) {
    return Internal("sequence {} decodes, but {} tokens are not computed", id, left);
  }
  if (one.phase == Phase::kWaiting && one.computed_tokens != 0) {
    return Internal("sequence {} waits, but {} tokens are computed", id, one.computed_tokens);
  }
  if (one.phase == Phase::kPrefilling && left < 1) {
    return Internal("sequence {} prefills, but nothing is left to compute", id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Scheduler::CheckInvariants() const {
  int64_t rows = 0;
  int64_t backlog = 0;
  size_t sequences = 0;
  size_t deadlines = 0;
  for (int i = 0; i < kNumPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    for (const SequenceState& one : InPhase(phase)) {
      ++sequences;
      if (one.spec.deadline != kNoDeadline) ++deadlines;
      const auto place = sequences_.find(one.spec.id);
      if (one.phase != phase || place == sequences_.end() || &*place->second != &one) {
        return Internal("sequence {} stands in the list of another phase", one.spec.id);
      }
      RETURN_IF_ERROR(CheckCounts(one, one.spec.max_total_tokens));
      const bool prefilling = phase == Phase::kPrefilling;
      if (prefilling || phase == Phase::kWaiting) backlog += one.known_tokens - one.computed_tokens;
      if (prefilling || phase == Phase::kRunning || phase == Phase::kParked ||
          phase == Phase::kSwappingIn) {
        rows += one.spec.width;
      }
    }
  }
  const auto check = [](const char* what, int64_t is, int64_t counted) {
    if (is == counted) return absl::OkStatus();
    return Internal("{}: {} by the sequences, {} counted", what, is, counted);
  };
  RETURN_IF_ERROR(check("sequences", static_cast<int64_t>(sequences), sequences_.size()));
  RETURN_IF_ERROR(check("deadlines", static_cast<int64_t>(deadlines), deadlines_.size()));
  RETURN_IF_ERROR(check("rows", rows, rows_));
  RETURN_IF_ERROR(check("tokens to prefill", backlog, backlog_tokens_));
  RETURN_IF_ERROR(check("sequences in line", Count(Phase::kWaiting) + Count(Phase::kPrefilling),
                        order_.size()));
  if (rows_ > options_.max_sequences) {
    return Internal("{} rows are taken, there are {}", rows_, options_.max_sequences);
  }
  return absl::OkStatus();
}

}  // namespace tandem
