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

// How the tile reads and multiplies columns of a stored type: as the type itself says, or as floats.
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

// Rows of quantised K or V, taken apart. An integer times its scale is a float without rounding.
struct CodeTile {
  Code* codes;    // [kPanel][head_dim]
  float* scales;  // [head_dim / 64][kPanel]
};

// Takes `count` rows that follow one another apart, as rows of the tile from `first` on, and asks
// for as many behind `next`.
HWY_NOINLINE inline void UnpackRows(int32_t bits, const QuantisedRow* rows,
                                    const QuantisedRow* next, size_t count, size_t head_dim,
                                    size_t first, const CodeTile& tile) {
  WithBits(bits, [&](auto constant) HWY_ATTR {
    constexpr int kBits = decltype(constant)::value;
    const auto* packed = reinterpret_cast<const uint8_t*>(rows);
    const auto* ahead = reinterpret_cast<const uint8_t*>(next);
    for (size_t row = first; row < first + count; ++row) {
      hwy::Prefetch(ahead + (packed - reinterpret_cast<const uint8_t*>(rows)));
      for (size_t dim = 0; dim < head_dim; dim += kGroupChannels, packed += KvGroupBytes(kBits)) {
        UnpackGroup<kBits>(packed, &tile.codes[row * head_dim + dim].value);
        tile.scales[dim / kGroupChannels * kPanel + row] = ScaleOf(packed, Codes<kBits>::kBytes);
      }
    }
  });
}

// What TransposeKeys gives of dimension `dim` of the keys from `key` of the group on, as floats:
// those of a tile have `scales`.
template <class T>
HWY_INLINE F32 Scaled(F32 keys, const float* scales, size_t dim, size_t key) {
  if constexpr (!std::is_same_v<T, Code>) return keys;
  return hn::Mul(keys, hn::LoadU(F32Tag(), scales + dim / kGroupChannels * kPanel + key));
}

// Widens a group of keys into out[dim][32].
template <class T>
HWY_NOINLINE void WidenKeys(const T* const* eights, const T* const* next, size_t head_dim,
                            const float* scales, float* HWY_RESTRICT out) {
  TransposeKeys<T>(eights, next, head_dim, [&](size_t v, size_t dim, F32 keys) HWY_ATTR {
    const size_t key = v * kLanes;
    hn::StoreU(Scaled<T>(keys, scales, dim, key), F32Tag(), out + dim * kPanel + key);
  });
}

// Scaled queries and their scores. A query is `width` words, floats or pairs of bf16, as a key is.
struct QueryTile {
  const float* queries;
  size_t query_stride;
  size_t width;
  const float* key_scales;  // of codes
  float* scores;
  size_t scores_stride;
};

// The scores of a group of keys without a stop in memory, for so few rows that its widened keys
// would be read but once. The same chains as MultiplyTile's.
template <size_t kRows, class T>
HWY_NOINLINE void ScoreKeys(const T* const* eights, const T* const* next, const QueryTile& tile) {
  const F32Tag d;
  F32 sums[kRows][kGroupVectors];
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kGroupVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  TransposeKeys<T>(eights, next, tile.width, [&](size_t v, size_t dim, F32 stored) HWY_ATTR {
    const F32 keys = Scaled<T>(stored, tile.key_scales, dim, v * kLanes);
    HWY_UNROLL(8)
    for (size_t r = 0; r < kRows; ++r) {
      const F32 query = hn::Set(d, tile.queries[r * tile.query_stride + dim]);
      sums[r][v] = TileColumns<T>::MulAdd(query, keys, sums[r][v]);
    }
  });
  HWY_UNROLL(8)
  for (size_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(2)
    for (size_t v = 0; v < kGroupVectors; ++v) {
      hn::StoreU(sums[r][v], d, tile.scores + r * tile.scores_stride + v * kLanes);
    }
  }
}

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

// As WidenValues, of the first rows of a tile.
HWY_NOINLINE inline void WidenCodes(const CodeTile& tile, size_t tokens, size_t head_dim,
                                    size_t panel_stride, float* HWY_RESTRICT out) {
  const F32Tag d;
  for (size_t t = 0; t < tokens; ++t, out += kPanel) {
    for (size_t dim = 0; dim < head_dim; dim += kLanes) {
      const F32 scale = hn::Set(d, tile.scales[dim / kGroupChannels * kPanel + t]);
      hn::StoreU(hn::Mul(LoadWide(d, tile.codes + t * head_dim + dim), scale), d,
                 out + dim / kPanel * panel_stride + dim % kPanel);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_ATTENTION_TILE_INL_H_
