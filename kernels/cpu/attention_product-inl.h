// The product at the heart of attention: a few rows of floats times a panel of stored columns, for
// scores and for outputs. Included once per target (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
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

// K is widened to [d][32] and V to [d/32][key][32], so that scores have keys in
// their lanes, outputs have dimensions in theirs, and both are the same product.
inline constexpr size_t kTileVectors = 2;
inline constexpr size_t kTileRows = kLanes == 16 ? 8 : 4;  // their accumulators fit the registers

// Loads two vectors of a stored type that lie one behind the other.
template <class T>
HWY_INLINE void LoadWidePair(const T* HWY_RESTRICT p, F32 (&x)[kTileVectors]) {
  const F32Tag d;
  x[0] = LoadWide(d, p);
  x[1] = LoadWide(d, p + kLanes);
}
#if HWY_TARGET != HWY_SCALAR
HWY_INLINE void LoadWidePair(const F8E4M3* HWY_RESTRICT p, F32 (&x)[kTileVectors]) {
  const F32Tag d;
  const hn::Repartition<int16_t, F32Tag> d16;
  const hn::Half<decltype(d16)> half;
  const hn::Rebind<hwy::float16_t, F32Tag> d_halves;
  const auto bytes =
      hn::LoadU(hn::Rebind<int8_t, decltype(d16)>(), reinterpret_cast<const int8_t*>(p));
  const auto halves = HalvesOfF8(hn::PromoteTo(d16, bytes));
  x[0] = WidenHalves(d, hn::BitCast(d_halves, hn::LowerHalf(half, halves)));
  x[1] = WidenHalves(d, hn::BitCast(d_halves, hn::UpperHalf(half, halves)));
}
#endif

// How the tile reads and multiplies columns of a stored type: as the type itself says, or as
// floats.
template <class T>
struct TileColumns {
  // Loads the numbers of one step of a Product from `p`. Steps are b_stride elements apart.
  static HWY_INLINE void Load(const T* HWY_RESTRICT p, size_t b_stride, F32 (&x)[kTileVectors]) {
    if constexpr (requires { T::Load(p, b_stride, x); }) {
      T::Load(p, b_stride, x);
    } else {
      LoadWidePair(p, x);
    }
  }
  static HWY_INLINE void Fetch(const T* p, size_t b_stride) {
    if constexpr (requires { T::Fetch(p, b_stride); }) {
      T::Fetch(p, b_stride);
    } else {
      hwy::Prefetch(p);
    }
  }
  static HWY_INLINE F32 MulAdd(F32 a, F32 b, F32 sum) {
    if constexpr (requires { T::MulAdd(a, b, sum); }) {
      return T::MulAdd(a, b, sum);
    } else {
      return hn::MulAdd(a, b, sum);
    }
  }
};

enum class Start : uint8_t { kZero, kLoad };

// a [rows][n], b [n][32] of a stored type, c [rows][32].
template <class T>
struct Product {
  const float* a;
  size_t a_stride;
  const T* b;
  size_t b_stride;
  size_t n;
  float* c;
  size_t c_stride;
  Start start;
  const float* scales = nullptr;  // [n], for b of codes: the scale of each row of b
  const T* next = nullptr;  // asked for while b is read: [n][b_stride], what follows b in time
};

enum class Ahead : uint8_t { kNothing, kNext };

// c = a * b (+ c), each element one chain of multiply-adds over rising n: what is computed for a
// row does not depend on how many rows share the tile, nor on where n was cut.
template <size_t kRows, Ahead kAhead, class T>
HWY_INLINE void MultiplyTile(const Product<T>& p, size_t column) {
  const F32Tag d;
  const T* HWY_RESTRICT b = p.b + column;
  float* HWY_RESTRICT c = p.c + column;
  F32 sums[kRows][kTileVectors];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kTileVectors; ++v) {
      sums[r][v] =
          p.start == Start::kZero ? hn::Zero(d) : hn::LoadU(d, c + r * p.c_stride + v * kLanes);
    }
  }
  for (size_t i = 0; i < p.n; ++i) {
    F32 columns[kTileVectors];
    TileColumns<T>::Load(b + i * p.b_stride, p.b_stride, columns);
    if constexpr (std::is_same_v<T, Code>) {
      const F32 scale = hn::Set(d, p.scales[i]);
      for (F32& column : columns) column = hn::Mul(column, scale);
    }
    if constexpr (kAhead == Ahead::kNext) {
      TileColumns<T>::Fetch(p.next + i * p.b_stride + column, p.b_stride);
    }
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const F32 scalar = hn::Set(d, p.a[r * p.a_stride + i]);
      HWY_UNROLL(4)
      for (size_t v = 0; v < kTileVectors; ++v) {
        sums[r][v] = TileColumns<T>::MulAdd(scalar, columns[v], sums[r][v]);
      }
    }
  }
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (size_t v = 0; v < kTileVectors; ++v) {
      hn::StoreU(sums[r][v], d, c + r * p.c_stride + v * kLanes);
    }
  }
}

template <size_t kRows, Ahead kAhead, class T>
HWY_NOINLINE void MultiplyPanel(const Product<T>& p) {
  for (size_t column = 0; column < kPanel; column += kTileVectors * kLanes) {
    MultiplyTile<kRows, kAhead>(p, column);
  }
}

// rows <= kTileRows.
template <Ahead kAhead, class T>
HWY_INLINE void Multiply(size_t rows, const Product<T>& p) {
  if constexpr (kTileRows == 8) {
    switch (rows) {
      case 8:
        return MultiplyPanel<8, kAhead>(p);
      case 7:
        return MultiplyPanel<7, kAhead>(p);
      case 6:
        return MultiplyPanel<6, kAhead>(p);
      case 5:
        return MultiplyPanel<5, kAhead>(p);
    }
  }
  switch (rows) {
    case 4:
      return MultiplyPanel<4, kAhead>(p);
    case 3:
      return MultiplyPanel<3, kAhead>(p);
    case 2:
      return MultiplyPanel<2, kAhead>(p);
    case 1:
      return MultiplyPanel<1, kAhead>(p);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_ATTENTION_PRODUCT_INL_H_
