#include "kernels/cpu/quantise_panel.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/weight_format.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantise_panel.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

static_assert(kCodeGroupInputs % kLanes == 0, "a group is whole vectors");

// The largest magnitude of a group; not finite where one of its values is not.
HWY_INLINE float LargestMagnitude(const float* HWY_RESTRICT values) {
  const F32Tag d;
  F32 largest = hn::Zero(d);
  F32 difference = hn::Zero(d);  // x - x is 0, or no number where x is not finite
  for (size_t i = 0; i < kCodeGroupInputs; i += kLanes) {
    const F32 x = hn::Load(d, values + i);
    largest = hn::Max(largest, hn::Abs(x));
    difference = hn::Add(difference, hn::Sub(x, x));
  }
  return hn::GetLane(hn::MaxOfLanes(d, largest)) + hn::GetLane(hn::SumOfLanes(d, difference));
}

// Quantises one group as kernels/weight_format.h says. A scale so small that its inverse would be
// infinite is zero.
HWY_INLINE uint16_t QuantiseGroup(const float* HWY_RESTRICT values, float largest, int8_t* codes) {
  const F32Tag d;
  const uint16_t bits = NearestBf16(largest / kMaxInt8Code);
  const float scale = FloatOfBf16(bits);
  if (scale < std::numeric_limits<float>::min()) {
    std::fill_n(codes, kCodeGroupInputs, int8_t{0});
    return 0;
  }
  const F32 inverse = hn::Set(d, 1 / scale);
  const F32 most = hn::Set(d, kMaxInt8Code);
  for (size_t i = 0; i < kCodeGroupInputs; i += kLanes) {
    const F32 scaled = hn::Mul(hn::Load(d, values + i), inverse);
    const auto code = hn::NearestInt(hn::Min(hn::Max(scaled, hn::Neg(most)), most));
    hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, F32Tag>(), code), hn::Rebind<int8_t, F32Tag>(),
               codes + i);
  }
  return bits;
}

// Widens one group of a row to f32, with zeros after `count` values.
template <class T>
HWY_INLINE void WidenGroup(const std::byte* from, int64_t count, float* HWY_RESTRICT values) {
  HWY_ALIGN T stored[kCodeGroupInputs] = {};
  std::memcpy(stored, from, static_cast<size_t>(count) * sizeof(T));
  for (size_t i = 0; i < kCodeGroupInputs; i += kLanes) {
    hn::Store(LoadWide(F32Tag(), stored + i), F32Tag(), values + i);
  }
}

template <class T>
int64_t QuantiseRows(const PanelRows& rows, int64_t k, std::byte* dst) {
  int64_t first_not_finite = kPanelOutputs;
  HWY_ALIGN float values[kCodeGroupInputs];
  int8_t codes[kCodeGroupInputs];
  for (int64_t row = 0; row < kPanelOutputs; ++row) {
    for (int64_t group = 0; group < NumCodeGroups(k); ++group) {
      const int64_t input = group * kCodeGroupInputs;
      const int64_t count = std::min(kCodeGroupInputs, k - input);
      WidenGroup<T>(rows[row] + input * sizeof(T), count, values);
      const float largest = LargestMagnitude(values);
      if (!(largest <= std::numeric_limits<float>::max())) {
        first_not_finite = std::min(first_not_finite, row);
        continue;
      }
      std::byte* to = dst + group * kCodeGroupBytes;
      const uint16_t scale = QuantiseGroup(values, largest, codes);
      std::memcpy(to + row * sizeof(scale), &scale, sizeof(scale));
      for (int64_t i = 0; i < kCodeGroupInputs; ++i) {
        to[CodeIndex(row, i)] = static_cast<std::byte>(codes[i]);
      }
    }
  }
  return first_not_finite;
}

int64_t QuantisePanelOf(const PanelRows& rows, DType dtype, int64_t k, std::byte* dst) {
  if (dtype == DType::kBF16) return QuantiseRows<hwy::bfloat16_t>(rows, k, dst);
  if (dtype == DType::kF16) return QuantiseRows<hwy::float16_t>(rows, k, dst);
  return QuantiseRows<float>(rows, k, dst);
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(QuantisePanelOf);

int64_t QuantisePanel(const PanelRows& rows, DType dtype, int64_t k, std::byte* dst) {
  return HWY_DYNAMIC_DISPATCH(QuantisePanelOf)(rows, dtype, k, dst);
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
