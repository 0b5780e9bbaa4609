#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"
#include "kernels/weight_format.h"

// How a GPU keeps a quantised weight (codes of kernels/weight_format.h): the codes of all rows,
// then the scales of all rows. A unit is 64 inputs, which are two groups: a row of codes is whole
// units, padded with codes of zero. In a unit the 8 inputs from 8j on of the first group are
// followed by those of the second, for j from 0 to 3: a lane that reads 16 bytes in one load has
// the same inputs of both groups. The memory is aligned to 16 bytes.

namespace tandem::cuda {

inline constexpr int64_t kUnitCodes = 2 * kCodeGroupInputs;

struct CodedWeight {
  const uint8_t* codes;    // [n, row_codes]
  const uint16_t* scales;  // bf16 [n, row_codes / 32]
  int64_t row_codes;       // k padded to whole units
};

constexpr int64_t RowCodes(int64_t k) { return (k + kUnitCodes - 1) / kUnitCodes * kUnitCodes; }

// The place of the code of `input` in its row.
__host__ __device__ constexpr int64_t CodePlace(int64_t input) {
  return input / kUnitCodes * kUnitCodes + input % 32 / 8 * 16 + input / 32 % 2 * 8 + input % 8;
}

constexpr int64_t CodedWeightBytes(int64_t n, int64_t k) {
  const int64_t scales = RowCodes(k) / kCodeGroupInputs;
  return n * (RowCodes(k) + scales * static_cast<int64_t>(sizeof(uint16_t)));
}

inline CodedWeight CodedWeightOf(const PackedMatrix& weight) {
  const int64_t row_codes = RowCodes(weight.k);
  return {.codes = reinterpret_cast<const uint8_t*>(weight.data),
          .scales = reinterpret_cast<const uint16_t*>(weight.data + weight.n * row_codes),
          .row_codes = row_codes};
}

}  // namespace tandem::cuda
