#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/op_args.h"

// What ColumnMass cuts its work into, and what its rows weigh.

namespace tandem::cpu {

// Some columns of one chunk of keys, whole panels: [begin, end) of the chunk's.
struct Columns {
  int64_t chunk;
  size_t begin;
  size_t end;
};

// What the weights of each counted row are multiplied by, made once per call: the powers of the
// decay are those of all sequences, whose rows are counted from the last one back.
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
