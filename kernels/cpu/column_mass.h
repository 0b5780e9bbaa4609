#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/op_args.h"

// The pieces that ColumnMass cuts its work into, and the factors of its rows' weights.

namespace tandem::cpu {

// Some of the columns of a chunk of keys: [begin, end) in the chunk, whole panels.
struct Columns {
  int64_t chunk;
  size_t begin;
  size_t end;
};

// What the weights of each counted row are multiplied by, made once per call: rows are counted from
// the last one back, so that all sequences have the same powers of the decay.
class RowFactors {
 public:
  explicit RowFactors(const ColumnMassArgs& args)
      : rows_behind_(args.rows_behind), first_(rows_behind_ / ColumnMassArgs::kRowsPerDecay) {
    const int64_t end = (rows_behind_ + args.last_rows - 1) / ColumnMassArgs::kRowsPerDecay + 1;
    for (int64_t power = first_; power < end; ++power) {
      powers_.push_back(static_cast<float>(std::pow(double{args.decay}, power)));
    }
  }

  // The factor of a row that has `rows_after` rows after it in the call, fewer than last_rows.
  float Of(int64_t rows_after) const {
    const int64_t power = (rows_behind_ + rows_after) / ColumnMassArgs::kRowsPerDecay;
    return powers_[static_cast<size_t>(power - first_)];
  }

 private:
  const int64_t rows_behind_;
  const int64_t first_;
  std::vector<float> powers_;
};

}  // namespace tandem::cpu
