// The inner loops of attention: tiles of K and V are widened once and multiplied many times.
// Included once per target (Highway's foreach_target).
#if defined(TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// Columns of a panel. K is widened to [key/32][d][32] and V to [d/32][key][32], so that scores have
// keys in their lanes, outputs have dimensions in theirs, and both are the same product.
inline constexpr size_t kPanel = 32;
inline constexpr size_t kTileVectors = 2;
inline constexpr size_t kTileColumns = kTileVectors * kLanes;
inline constexpr size_t kTileRows = kLanes == 16 ? 8 : 4;  // the accumulators fit the registers

enum class Start : uint8_t { kZero, kLoad };

// a [rows][n] with row stride a_stride, b [n][32], c [rows][32] with row stride c_stride.
struct Product {
  const float* a;
  size_t a_stride;
  const float* b;
  size_t n;
  float* c;
  size_t c_stride;
  Start start;
};

// c = a * b (+ c), each element one chain of multiply-adds over rising n: what is computed for a
// row does not depend on how many rows share the tile, nor on where n was cut.
template <size_t kRows>
HWY_INLINE void MultiplyTile(const Product& p, size_t column) {
  const F32Tag d;
  const float* HWY_RESTRICT b = p.b + column;
  float* HWY_RESTRICT c = p.c + column;
  F32 sums[kRows][kTileVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kTileVectors; ++v) {
      sums[r][v] =
          p.start == Start::kZero ? hn::Zero(d) : hn::LoadU(d, c + r * p.c_stride + v * kLanes);
    }
  }
  for (size_t i = 0; i < p.n; ++i) {
    F32 columns[kTileVectors];
    for (size_t v = 0; v < kTileVectors; ++v) columns[v] = hn::Load(d, b + i * kPanel + v * kLanes);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const F32 scalar = hn::Set(d, p.a[r * p.a_stride + i]);
      for (size_t v = 0; v < kTileVectors; ++v) {
        sums[r][v] = hn::MulAdd(scalar, columns[v], sums[r][v]);
      }
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kTileVectors; ++v) {
      hn::StoreU(sums[r][v], d, c + r * p.c_stride + v * kLanes);
    }
  }
}

template <size_t kRows>
HWY_NOINLINE void MultiplyPanel(const Product& p) {
  for (size_t column = 0; column < kPanel; column += kTileColumns) MultiplyTile<kRows>(p, column);
}

// rows <= kTileRows.
HWY_INLINE void Multiply(size_t rows, const Product& p) {
  if constexpr (kTileRows == 8) {
    switch (rows) {
      case 8:
        return MultiplyPanel<8>(p);
      case 7:
        return MultiplyPanel<7>(p);
      case 6:
        return MultiplyPanel<6>(p);
      case 5:
        return MultiplyPanel<5>(p);
    }
  }
  switch (rows) {
    case 4:
      return MultiplyPanel<4>(p);
    case 3:
      return MultiplyPanel<3>(p);
    case 2:
      return MultiplyPanel<2>(p);
    case 1:
      return MultiplyPanel<1>(p);
  }
}

// WidenKeys transposes the keys of 16 tokens, eight from each of two places, into out[d][32]: lanes
// are keys.
#if HWY_TARGET == HWY_SCALAR

template <class T>
void WidenKeys(const T* const eights[2], size_t head_dim, float* HWY_RESTRICT out) {
  const F32Tag d;
  for (size_t key = 0; key < 16; ++key) {
    const T* row = eights[key / 8] + key % 8 * head_dim;
    for (size_t i = 0; i < head_dim; ++i)
      hn::Store(LoadWide(d, row + i), d, out + i * kPanel + key);
  }
}

#else

// How one 32-bit column of 128 bits of a row is widened into dimensions.
template <class T>
struct Columns;

template <>
struct Columns<float> {
  static constexpr size_t kDims = 1;
  static HWY_INLINE void Store(hn::Vec<U32Tag> x, float* out) {
    hn::StoreU(hn::BitCast(F32Tag(), x), F32Tag(), out);
  }
};

template <>
struct Columns<hwy::bfloat16_t> {
  static constexpr size_t kDims = 2;
  static HWY_INLINE void Store(hn::Vec<U32Tag> x, float* out) {
    const F32Tag d;
    hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(x)), d, out);
    hn::StoreU(hn::BitCast(d, hn::And(x, hn::Set(U32Tag(), 0xffff0000u))), d, out + kPanel);
  }
};

template <>
struct Columns<hwy::float16_t> {
  static constexpr size_t kDims = 2;
  static HWY_INLINE F32 Widen(hn::Vec<U32Tag> x) {
    const hn::Rebind<uint16_t, U32Tag> d16;
    const auto halves = hn::DemoteTo(d16, hn::BitCast(I32Tag(), x));
    return hn::PromoteTo(F32Tag(), hn::BitCast(hn::Rebind<hwy::float16_t, F32Tag>(), halves));
  }
  static HWY_INLINE void Store(hn::Vec<U32Tag> x, float* out) {
    const F32Tag d;
    hn::StoreU(Widen(hn::And(x, hn::Set(U32Tag(), 0xffffu))), d, out);
    hn::StoreU(Widen(hn::ShiftRight<16>(x)), d, out + kPanel);
  }
};

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

template <class T>
void WidenKeys(const T* const eights[2], size_t head_dim, float* HWY_RESTRICT out) {
  const U32Tag d;
  const hn::Repartition<uint64_t, U32Tag> d64;
  const hn::FixedTag<uint32_t, 4> block;
  constexpr size_t kDims = 4 * Columns<T>::kDims;  // of 128 bits
  for (size_t dim = 0; dim < head_dim; dim += kDims) {
    for (size_t key = 0; key < 16; key += kLanes) {
      hn::Vec<U32Tag> rows[4];
      for (size_t r = 0; r < 4; ++r) {
        rows[r] = CombineBlocks(d, 0, [&](size_t b) HWY_ATTR {
          const size_t token = key + 4 * b + r;
          const T* row = eights[token / 8] + token % 8 * head_dim + dim;
          return hn::LoadU(block, reinterpret_cast<const uint32_t*>(row));
        });
      }
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, rows[0], rows[1]));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, rows[2], rows[3]));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[0], rows[1]));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[2], rows[3]));
      constexpr size_t kStep = Columns<T>::kDims * kPanel;
      float* to = out + dim * kPanel + key;
      Columns<T>::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), to);
      Columns<T>::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), to + kStep);
      Columns<T>::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), to + 2 * kStep);
      Columns<T>::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), to + 3 * kStep);
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// Widens `tokens` rows of V into out[d/32][key][32]; panel_stride floats from one panel to the
// next.
template <class T>
void WidenValues(const T* HWY_RESTRICT rows, size_t tokens, size_t head_dim, size_t panel_stride,
                 float* HWY_RESTRICT out) {
  const F32Tag d;
  const size_t whole = head_dim / kLanes * kLanes;
  for (size_t t = 0; t < tokens; ++t, rows += head_dim, out += kPanel) {
    for (size_t dim = 0; dim < whole; dim += kLanes) {
      hn::StoreU(LoadWide(d, rows + dim), d, out + dim / kPanel * panel_stride + dim % kPanel);
    }
    if (whole == head_dim) continue;
    const hn::CappedTag<float, 8> eight;
    hn::StoreU(LoadWide(eight, rows + whole), eight,
               out + whole / kPanel * panel_stride + whole % kPanel);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_
