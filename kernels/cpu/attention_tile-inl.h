// Tiles of K and V on their way from the pool to the product: quantised rows are taken apart, K and
// V are widened once to be multiplied many times, or scored without a stop in memory.
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
#include "kernels/cpu/attention_product-inl.h"
#include "kernels/cpu/attention_transpose-inl.h"
#include "kernels/cpu/quantised_row-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

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
