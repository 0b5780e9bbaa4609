#pragma once

#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/thread_pool.h"
#include "kernels/tensor.h"

// The CPU's order of a packed weight [n, k]. Outputs are grouped into panels of 32, so that one
// output is one vector lane; a panel is read from front to back while k rises.
//   bf16      [n/32][k/2][32][2]  a pair of k in one 32-bit lane: widening is one shift, one mask
//   f16, f32  [n/32][k][32]
// n and k are padded with zeros to whole panels and pairs. One order serves every number of rows.

namespace tandem::cpu {

inline constexpr int64_t kPanelOutputs = 32;

// k as it is stored: even for bf16.
constexpr int64_t PaddedK(DType dtype, int64_t k) {
  return dtype == DType::kBF16 ? (k + 1) / 2 * 2 : k;
}

constexpr int64_t NumPanels(int64_t n) { return (n + kPanelOutputs - 1) / kPanelOutputs; }

constexpr int64_t PanelElements(DType dtype, int64_t k) {
  return PaddedK(dtype, k) * kPanelOutputs;
}

constexpr int64_t PackedBytes(DType dtype, int64_t n, int64_t k) {
  return NumPanels(n) * PanelElements(dtype, k) * SizeOf(dtype);
}

// Where element [output, input] lies, in elements from the start of the data.
constexpr int64_t PackedIndex(const PackedMatrix& matrix, int64_t output, int64_t input) {
  const int64_t panel = output / kPanelOutputs;
  const int64_t lane = output % kPanelOutputs;
  const int64_t start = panel * PanelElements(matrix.dtype, matrix.k);
  if (matrix.dtype != DType::kBF16) return start + input * kPanelOutputs + lane;
  return start + (input / 2) * (2 * kPanelOutputs) + lane * 2 + input % 2;
}

// See Ops::PackWeight. Sources are read once, front to back; they may be unaligned (a mapped file).
void PackWeight(ThreadPool& pool, const PackedMatrix& dst, std::span<const TensorView> sources);

}  // namespace tandem::cpu
