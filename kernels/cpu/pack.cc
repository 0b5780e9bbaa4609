
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/status.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/quantise_panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pack.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR

// The transpose works on 32-bit units: one f32, or two inputs of 16 bits.
using Units = hn::Full128<uint32_t>;
constexpr int kUnits = 4;
constexpr int kLineUnits = 16;

// Loads four units of each of four rows and transposes them: units[i] becomes unit i of every row.
HWY_INLINE void Load4x4(const PanelRows& rows, int first_row, int64_t byte,
                        hn::Vec<Units> (&units)[kUnits]) {
  const Units d;
  const hn::Repartition<uint64_t, Units> d64;
  const hn::Repartition<uint8_t, Units> d8;
  hn::Vec<Units> row[kUnits];
  for (int i = 0; i < kUnits; ++i) {
    const auto* at = reinterpret_cast<const uint8_t*>(rows[first_row + i] + byte);
    row[i] = hn::BitCast(d, hn::LoadU(d8, at));
  }
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, row[0], row[1]));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, row[2], row[3]));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, row[0], row[1]));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, row[2], row[3]));
  units[0] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
  units[1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
  units[2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
  units[3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
}

// Stores one unit of four outputs: as it is, or for f16 as two inputs one after the other.
template <DType kDType>
HWY_INLINE void StoreUnit(hn::Vec<Units> unit, std::byte* dst, int64_t index, int first_row) {
  if constexpr (kDType == DType::kF16) {
    const hn::Rebind<uint16_t, Units> d16;
    auto* even = reinterpret_cast<uint16_t*>(dst) + index * 2 * kPanelOutputs + first_row;
    hn::StoreU(hn::TruncateTo(d16, unit), d16, even);
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(unit)), d16, even + kPanelOutputs);
  } else {
    auto* to = reinterpret_cast<uint32_t*>(dst) + index * kPanelOutputs + first_row;
    hn::StoreU(unit, Units(), to);
  }
}

// Packs the units that fill whole cache lines of each row; returns how many. A line is taken
// whole, since rows a power of two apart share few sets of the L1 cache.
template <DType kDType>
int64_t PackLines(const PanelRows& rows, int64_t num_units, std::byte* dst) {
  const int64_t end = num_units / kLineUnits * kLineUnits;
  for (int64_t line = 0; line < end; line += kLineUnits) {
    for (int row = 0; row < kPanelOutputs; row += kUnits) {
      for (int64_t unit = line; unit < line + kLineUnits; unit += kUnits) {
        hn::Vec<Units> units[kUnits];
        Load4x4(rows, row, unit * 4, units);
        for (int i = 0; i < kUnits; ++i) StoreUnit<kDType>(units[i], dst, unit + i, row);
      }
    }
  }
  return end;
}

#else

template <DType kDType>
int64_t PackLines(const PanelRows&, int64_t, std::byte*) {
  return 0;
}

#endif

// Packs inputs from `input` on one by one. bf16 stores whole pairs: an odd k ends with a zero.
template <DType kDType>
void PackRest(const PanelRows& rows, int64_t input, int64_t k, std::byte* dst) {
  constexpr int64_t kBytes = SizeOf(kDType);
  const PackedMatrix panel{nullptr, kDType, kPanelOutputs, k};
  for (; input < PaddedK(kDType, k); ++input) {
    for (int row = 0; row < kPanelOutputs; ++row) {
      std::byte* to = dst + PackedIndex(panel, row, input) * kBytes;
      if (input < k) {
        std::memcpy(to, rows[row] + input * kBytes, kBytes);
      } else {
        std::memset(to, 0, kBytes);
      }
    }
  }
}

template <DType kDType>
void PackPanelOf(const PanelRows& rows, int64_t k, std::byte* dst) {
  constexpr int64_t kInputsPerUnit = 4 / SizeOf(kDType);
  const int64_t num_units = PackLines<kDType>(rows, k / kInputsPerUnit, dst);
  PackRest<kDType>(rows, num_units * kInputsPerUnit, k, dst);
}

void PackPanel(const PanelRows& rows, DType dtype, int64_t k, std::byte* dst) {
  if (dtype == DType::kBF16) return PackPanelOf<DType::kBF16>(rows, k, dst);
  if (dtype == DType::kF16) return PackPanelOf<DType::kF16>(rows, k, dst);
  return PackPanelOf<DType::kF32>(rows, k, dst);
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(PackPanel);

namespace {

// The address of each output's row in `sources`, stacked in order.
std::vector<const std::byte*> RowAddresses(std::span<const TensorView> sources) {
  std::vector<const std::byte*> rows;
  for (const TensorView& source : sources) {
    const auto* first = static_cast<const std::byte*>(source.data);
    for (int64_t row = 0; row < source.rows(); ++row) {
      rows.push_back(first + row * source.row_stride * SizeOf(source.dtype));
    }
  }
  return rows;
}

// Packs one panel from rows of codes, whose scales begin with those of `first_row`. The padding
// beyond the matrix becomes zero; the memory need not be zero before. Returns the first row with a
// code that is NaN, or kPanelOutputs.
int64_t PackCodes(const PanelRows& rows, int64_t first_row, const TensorView& scales,
                  const PackedMatrix& matrix, std::byte* dst) {
  const int64_t k = matrix.k;
  std::memset(dst, 0, static_cast<size_t>(PanelBytes(matrix.format, k)));
  const bool is_f8 = matrix.format.dtype() == DType::kF8E4M3;
  const int64_t num_rows = std::min(kPanelOutputs, scales.rows() - first_row);
  int64_t first_not_a_number = kPanelOutputs;
  for (int64_t row = 0; row < num_rows; ++row) {
    const float* of_row = scales.Row<const float>(first_row + row);
    for (int64_t group = 0; group < NumCodeGroups(k); ++group) {
      std::byte* to = dst + group * kCodeGroupBytes;
      const uint16_t scale = NearestBf16(of_row[group]);
      std::memcpy(to + row * static_cast<int64_t>(sizeof(scale)), &scale, sizeof(scale));
      const int64_t input = group * kCodeGroupInputs;
      const int64_t count = std::min(kCodeGroupInputs, k - input);
      for (int64_t i = 0; i < count; ++i) {
        const std::byte code = rows[row][input + i];
        to[CodeIndex(row, i)] = code;
        if (is_f8 && IsF8NaN(static_cast<uint8_t>(code))) {
          first_not_a_number = std::min(first_not_a_number, row);
        }
      }
    }
  }
  return first_not_a_number;
}

}  // namespace

// Sources are read once, front to back; they may be unaligned (a mapped file).
absl::Status CpuOps::DoPackWeight(Stream&, const PackedMatrix& dst,
                                  std::span<const TensorView> sources, const TensorView& scales) {
  const DType dtype = sources.empty() ? dst.format.dtype() : sources[0].dtype;
  const std::vector<std::byte> zeros(dst.k * SizeOf(dtype));
  std::vector<const std::byte*> rows = RowAddresses(sources);
  const int64_t num_panels = NumPanels(dst.n);
  rows.resize(num_panels * kPanelOutputs, zeros.data());

  std::atomic<int64_t> not_finite = dst.n;  // some row with an infinity or NaN; dst.n: none
  // One range of panels per thread: two threads that touch a huge page at the same time would both
  // clear it.
  const int64_t num_ranges = std::min<int64_t>(pool_.num_threads(), num_panels);
  pool_.ParallelFor(num_ranges, [&](int64_t range, int) {
    const int64_t end = (range + 1) * num_panels / num_ranges;
    for (int64_t panel = range * num_panels / num_ranges; panel < end; ++panel) {
      PanelRows panel_rows;
      std::copy_n(rows.begin() + panel * kPanelOutputs, kPanelOutputs, panel_rows.begin());
      std::byte* to = dst.data + panel * PanelBytes(dst.format, dst.k);
      if (!dst.format.has_codes()) {
        HWY_DYNAMIC_DISPATCH(PackPanel)(panel_rows, dtype, dst.k, to);
        continue;
      }
      const int64_t row = scales.present()
                              ? PackCodes(panel_rows, panel * kPanelOutputs, scales, dst, to)
                              : QuantisePanel(panel_rows, dtype, dst.k, to);
      if (row < kPanelOutputs) not_finite = panel * kPanelOutputs + row;
    }
  });
  if (not_finite == dst.n) return absl::OkStatus();
  return InvalidArgument(
      "row {} of the weight has a value that is infinite or no number: {} cannot keep it",
      not_finite.load(), Name(dst.format));
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
