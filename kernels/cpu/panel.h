#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/tensor.h"
#include "kernels/weight_format.h"

// The CPU's order of a packed weight [n, k]. Outputs are grouped into panels of 32, so that one
// output is one vector lane; a panel is read from front to back while k rises.
//   bf16      [n/32][k/2][32][2]  a pair of k in one 32-bit lane: widening is one shift, one mask
//   f16, f32  [n/32][k][32]
//   codes     [n/32][k/32] groups of 1088 bytes: 32 scales of bf16, then codes [32 inputs][32 outputs]
// n and k are padded with zeros to whole panels, pairs and groups. One order serves every number of
// rows.

namespace tandem::cpu {

inline constexpr int64_t kPanelOutputs = 32;

// The number of inputs k with its padding: even for bf16.
constexpr int64_t PaddedK(DType dtype, int64_t k) {
  return dtype == DType::kBF16 ? (k + 1) / 2 * 2 : k;
}

constexpr int64_t NumPanels(int64_t n) { return (n + kPanelOutputs - 1) / kPanelOutputs; }

constexpr int64_t PanelElements(DType dtype, int64_t k) {
  return PaddedK(dtype, k) * kPanelOutputs;
}

// The offset of the codes in a group, which begins with its scales, one per output.
inline constexpr int64_t kCodesOffset = kPanelOutputs * SizeOf(DType::kBF16);
inline constexpr int64_t kCodeGroupBytes = kCodesOffset + kCodeGroupInputs * kPanelOutputs;

// Where a group has the code of [output, input], in bytes from the group's start.
constexpr int64_t CodeIndex(int64_t output, int64_t input) {
  return kCodesOffset + input * kPanelOutputs + output;
}

constexpr int64_t NumCodeGroups(int64_t k) { return (k + kCodeGroupInputs - 1) / kCodeGroupInputs; }

constexpr int64_t PanelBytes(WeightFormat format, int64_t k) {
  if (format.has_codes()) return NumCodeGroups(k) * kCodeGroupBytes;
  return PanelElements(format.dtype(), k) * SizeOf(format.dtype());
}

constexpr int64_t PackedBytes(WeightFormat format, int64_t n, int64_t k) {
  return NumPanels(n) * PanelBytes(format, k);
}

// Where a panelled matrix of floats has element [output, input], in elements from the start of the
// data.
constexpr int64_t PackedIndex(const PackedMatrix& matrix, int64_t output, int64_t input) {
  const DType dtype = matrix.format.dtype();
  const int64_t panel = output / kPanelOutputs;
  const int64_t lane = output % kPanelOutputs;
  const int64_t start = panel * PanelElements(dtype, matrix.k);
  if (dtype != DType::kBF16) return start + input * kPanelOutputs + lane;
  return start + (input / 2) * (2 * kPanelOutputs) + lane * 2 + input % 2;
}

// The addresses of the rows of one panel; for rows past the matrix, addresses of zeros.
using PanelRows = std::array<const std::byte*, kPanelOutputs>;

}  // namespace tandem::cpu
