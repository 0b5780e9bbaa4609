#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Measurements of gamma on a grid: the milliseconds that each of N prefill tokens adds to a step of
// B decodes, each with C / B tokens of context. Prompts were fresh: their chunks begin at token 0.
struct InterferenceGrid {
  std::vector<int32_t> tokens;     // N, ascending, above 0
  std::vector<int32_t> sequences;  // B, ascending, above 0
  std::vector<int32_t> context;    // C / B, ascending, not negative
  std::vector<double> gamma_ms;    // gamma, indexed [N][B][C]

  bool empty() const { return gamma_ms.empty(); }
  size_t Index(size_t n, size_t b, size_t c) const {
    return (n * sequences.size() + b) * context.size() + c;
  }
};

// The measured grid of gamma, prepared for prediction. It holds the time that N tokens add without
// the attention among themselves, because StepModel accounts for attention by pairs. Measurements
// are noisy, and predictions must be monotone all the same, so times are raised or lowered where
// needed: a larger N or B never adds less, and a longer context never adds more, nor so much less
// that the step as a whole would get faster. Between grid points the time is interpolated linearly.
// Below the grid it is proportional to N; above it, each further token costs a1; beyond the ends of
// the other axes it is constant. Immutable, so any thread may read it.
class InterferenceTable {
 public:
  InterferenceTable() = default;

  // The coefficients of the step model for which the table is used.
  struct Costs {
    double token_ms = 0;          // coefficient a1 of the step model
    double pair_ms = 0;           // coefficient a2 of the step model
    double context_token_ms = 0;  // coefficient b2 of the step model
  };

  // INVALID_ARGUMENT names the axis or cell that is wrong.
  static absl::StatusOr<InterferenceTable> Create(const InterferenceGrid& grid, const Costs& costs);

  bool empty() const { return grid_.empty(); }
  const InterferenceGrid& grid() const { return grid_; }
  // The milliseconds that `tokens` prefill tokens add to a step of `sequences` decodes, which read
  // `context` tokens together, without the attention among the prefill tokens. The table must not
  // be empty.
  double AddedMs(double tokens, double sequences, double context) const;

 private:
  InterferenceGrid grid_;
  double token_ms_ = 0;
  std::vector<double> added_ms_;  // indexed like grid_.gamma_ms
};

}  // namespace tandem
