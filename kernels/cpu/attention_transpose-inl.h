// Reads keys as columns: dimension by dimension, each of a group of neighbouring keys, as floats.
// Included once per target (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_ATTENTION_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_TRANSPOSE_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_TRANSPOSE_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_TRANSPOSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "hwy/cache_control.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/quantised_row-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// Keys that are transposed at a time, and their vectors.
inline constexpr size_t kGroup = HWY_MAX(16, 2 * kLanes);
inline constexpr size_t kGroupVectors = kGroup / kLanes;
static_assert(kPanel % kGroup == 0);

// TransposeKeys calls sink(v, dim, x): x is dimension `dim` of the keys of vector v of the group,
// as floats. Dimensions rise for each v. Eight tokens lie behind each pointer; those behind `next`
// are asked for meanwhile.
#if HWY_TARGET == HWY_SCALAR

template <class T, class Sink>
HWY_INLINE void TransposeKeys(const T* const* eights, const T* const*, size_t head_dim,
                              const Sink& sink) {
  for (size_t dim = 0; dim < head_dim; ++dim) {
    for (size_t v = 0; v < kGroup; ++v) {
      sink(v, dim, LoadWide(F32Tag(), eights[v / 8] + v % 8 * head_dim + dim));
    }
  }
}

#else

// How 128 bits of a row are read, and the dimensions in one 32-bit column of them widened.
template <class T>
struct Column;

using RowBits = hn::FixedTag<uint32_t, 4>;

template <>
struct Column<float> {
  static constexpr size_t kDims = 1;
  static HWY_INLINE hn::Vec<RowBits> Load(const float* row) {
    return hn::LoadU(RowBits(), reinterpret_cast<const uint32_t*>(row));
  }
  static HWY_INLINE F32 Widen(hn::Vec<U32Tag> x, size_t) { return hn::BitCast(F32Tag(), x); }
};

template <>
struct Column<hwy::bfloat16_t> {
  static constexpr size_t kDims = 2;
  static HWY_INLINE hn::Vec<RowBits> Load(const hwy::bfloat16_t* row) {
    return hn::LoadU(RowBits(), reinterpret_cast<const uint32_t*>(row));
  }
  static HWY_INLINE F32 Widen(hn::Vec<U32Tag> x, size_t i) {
    const auto high = hn::And(x, hn::Set(U32Tag(), 0xffff0000u));
    return hn::BitCast(F32Tag(), i == 0 ? hn::ShiftLeft<16>(x) : high);
  }
};

template <>
struct Column<hwy::float16_t> {
  static constexpr size_t kDims = 2;
  static HWY_INLINE hn::Vec<RowBits> Load(const hwy::float16_t* row) {
    return hn::LoadU(RowBits(), reinterpret_cast<const uint32_t*>(row));
  }
  static HWY_INLINE F32 Widen(hn::Vec<U32Tag> x, size_t i) {
    const hn::Rebind<uint16_t, U32Tag> d16;
    const auto half = i == 0 ? hn::And(x, hn::Set(U32Tag(), 0xffffu)) : hn::ShiftRight<16>(x);
    const auto halves = hn::DemoteTo(d16, hn::BitCast(I32Tag(), half));
    return WidenHalves(F32Tag(), hn::BitCast(hn::Rebind<hwy::float16_t, F32Tag>(), halves));
  }
};

// Read as 16-bit numbers, which Widen takes as f16 once they are whole vectors.
template <>
struct Column<F8E4M3> : Column<hwy::float16_t> {
  static HWY_INLINE hn::Vec<RowBits> Load(const F8E4M3* row) {
    const auto bytes = hn::LoadU(hn::FixedTag<int8_t, 8>(), reinterpret_cast<const int8_t*>(row));
    return hn::BitCast(RowBits(), hn::PromoteTo(hn::FixedTag<int16_t, 8>(), bytes));
  }
};

// One integer in each byte.
template <>
struct Column<Code> {
  static constexpr size_t kDims = 4;
  static HWY_INLINE hn::Vec<RowBits> Load(const Code* row) {
    return hn::LoadU(RowBits(), reinterpret_cast<const uint32_t*>(row));
  }
  static HWY_INLINE F32 Widen(hn::Vec<U32Tag> x, size_t i) {
    if (i == 0) x = hn::ShiftLeft<24>(x);
    if (i == 1) x = hn::ShiftLeft<16>(x);
    if (i == 2) x = hn::ShiftLeft<8>(x);
    return hn::ConvertTo(F32Tag(), hn::ShiftRight<24>(hn::BitCast(I32Tag(), x)));
  }
};

// What Column<T>::Widen takes, of what its Load gave.
template <class T>
HWY_INLINE hn::Vec<U32Tag> Loaded(hn::Vec<U32Tag> rows) {
  if constexpr (!std::is_same_v<T, F8E4M3>) return rows;
  const hn::Repartition<int16_t, U32Tag> d16;
  return hn::BitCast(U32Tag(), HalvesOfF8(hn::BitCast(d16, rows)));
}

// A vector of 128-bit blocks: block b is load(first + b).
template <class D, class Load>
HWY_INLINE hn::Vec<D> CombineBlocks(D d, size_t first, const Load& load) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return load(first);
  } else {
    const hn::Half<D> half;
    const auto lower = CombineBlocks(half, first, load);
    const auto upper = CombineBlocks(half, first + hn::MaxLanes(half) / 4, load);
    return hn::Combine(d, upper, lower);
  }
}

template <class T, class Sink>
HWY_INLINE void TransposeKeys(const T* const* eights, const T* const* next, size_t head_dim,
                              const Sink& sink) {
  const U32Tag d;
  const hn::Repartition<uint64_t, U32Tag> d64;
  constexpr size_t kDims = Column<T>::kDims;
  constexpr size_t kStepBytes = 8 * 4 * kDims * sizeof(T);  // of eight tokens
  for (size_t dim = 0; dim < head_dim; dim += 4 * kDims) {
    HWY_UNROLL(4)
    for (size_t i = 0; i < kGroup / 8; ++i) {  // as many bytes as are read
      for (size_t line = 0; line < kStepBytes; line += 64) {
        hwy::Prefetch(reinterpret_cast<const std::byte*>(next[i] + 8 * dim) + line);
      }
    }
    HWY_UNROLL(2)
    for (size_t v = 0; v < kGroupVectors; ++v) {
      hn::Vec<U32Tag> rows[4];
      HWY_UNROLL(4)
      for (size_t r = 0; r < 4; ++r) {
        rows[r] = Loaded<T>(CombineBlocks(d, 0, [&](size_t b) HWY_ATTR {
          const size_t token = v * kLanes + 4 * b + r;
          const T* row = eights[token / 8] + token % 8 * head_dim + dim;
          return Column<T>::Load(row);
        }));
      }
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, rows[0], rows[1]));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, rows[2], rows[3]));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[0], rows[1]));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[2], rows[3]));
      const hn::Vec<U32Tag> columns[4] = {
          hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)),
          hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)),
          hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)),
          hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)),
      };
      HWY_UNROLL(4)
      for (size_t c = 0; c < 4; ++c) {
        HWY_UNROLL(4)
        for (size_t i = 0; i < kDims; ++i) {
          sink(v, dim + c * kDims + i, Column<T>::Widen(columns[c], i));
        }
      }
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_ATTENTION_TRANSPOSE_INL_H_
