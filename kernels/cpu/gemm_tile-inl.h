// The register tile of the matrix product. Included once per vector target.

#if defined(TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_
#undef TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_
#else
#define TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_job.h"
#include "kernels/cpu/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using V = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
// AVX-512 and NEON have 32 registers for vectors, others 16.
constexpr bool kHasManyRegisters = kLanes == 16 || HWY_ARCH_ARM_A64;

// Vectors of outputs of a tile of so many rows. Few rows take less time than their stream of
// weights, which shall pass once, in order: they take all vectors of a panel, or four, whose chains
// of additions keep the adders busy. With more rows two vectors share the loads of activations.
// With 8 rows three of their sums do not fit 16 registers, which costs less than those loads where
// two threads share a core.
template <class W>
constexpr int TileVectors(int rows) {
  constexpr int64_t kPanelVectors = kPanelOutputs / kLanes;
  if (rows <= W::kSinglePassRows) return std::min<int64_t>(kPanelVectors, 4);
  return kHasManyRegisters || rows <= 2 * kGroupRows ? 2 : 1;
}

// Groups of rows of a tile, where one tile holds all rows or several do. Where registers are few,
// two vectors, which share the loads of activations, are worth more than many rows, once weights
// are read again and again.
constexpr int64_t TileGroups(int64_t num_rows) {
  return kHasManyRegisters || num_rows <= kTileRows ? kTileGroups : 1;
}

struct F32Weights;

// What is common to weights that are floats of kElementBytes.
template <int64_t kElementBytes>
struct FloatWeights {
  static constexpr int64_t kInputsPerWord = 1;  // a word of activations is an f32
  static constexpr bool kHasCodes = false;
  static constexpr bool kStreamed = true;
  static constexpr int kSinglePassRows = kGroupRows;  // even if 16 registers do not hold all sums
  static constexpr bool kWidens = kElementBytes < 4;
  using Widened = F32Weights;
  // Bytes of one output at one input (of BF16Pairs: at one word, which has two inputs), and of all
  // outputs of a panel at it.
  static constexpr int64_t kBytes = kElementBytes;
  static constexpr int64_t kInputBytes = kPanelOutputs * kElementBytes;
  static HWY_INLINE V MulAdd(V x, V weights, V sum) { return FusedMulAdd(x, weights, sum); }
};

// How stored weights become f32 vectors of kLanes outputs, at one input or at two. `at` points to
// the first of these outputs at the first input.
struct BF16Weights : FloatWeights<2> {
  static constexpr int64_t kOutputStride = 4;  // bytes from one output to the next
  static HWY_INLINE void LoadPair(const std::byte* at, V& even, V& odd) {
    const hn::RebindToUnsigned<F32> u32;
    const auto pairs = hn::LoadU(u32, reinterpret_cast<const uint32_t*>(at));
    even = hn::BitCast(F32(), hn::ShiftLeft<16>(pairs));
    odd = hn::BitCast(F32(), hn::And(pairs, hn::Set(u32, 0xFFFF0000u)));
  }
  static HWY_INLINE V LoadOne(const std::byte* at) {
    V even, odd;
    LoadPair(at, even, odd);
    return even;
  }
};

struct F16Weights : FloatWeights<2> {
  static constexpr int64_t kOutputStride = 2;
  static HWY_INLINE V LoadOne(const std::byte* at) {
    const hn::Rebind<hwy::float16_t, F32> f16;
    return hn::PromoteTo(F32(), hn::LoadU(f16, reinterpret_cast<const hwy::float16_t*>(at)));
  }
  static HWY_INLINE void LoadPair(const std::byte* at, V& even, V& odd) {
    even = LoadOne(at);
    odd = LoadOne(at + kPanelOutputs * kBytes);
  }
};

struct F32Weights : FloatWeights<4> {
  static constexpr int64_t kOutputStride = 4;
  static HWY_INLINE V LoadOne(const std::byte* at) {
    return hn::LoadU(F32(), reinterpret_cast<const float*>(at));
  }
  static HWY_INLINE void LoadPair(const std::byte* at, V& even, V& odd) {
    even = LoadOne(at);
    odd = LoadOne(at + kPanelOutputs * kBytes);
  }
};

// A block that is in L1 already: one that Widen wrote to the scratch memory, as F32Weights, or one
// that several tiles read as it is.
template <class W>
struct InCache : W {
  static constexpr bool kStreamed = false;
  static constexpr int kSinglePassRows = 0;
};

// Fetches weights, which come from memory, each once: from far ahead into L2, where `fetch` says,
// so that enough requests are under way to fill the memory's bandwidth; from there into L1. Two
// inputs at a time.
template <class W>
HWY_INLINE void FetchAhead(const std::byte* w, const std::byte* fetch, int64_t fetch_step) {
  constexpr int kLines = 2 * kPanelOutputs * W::kBytes / 64;
  constexpr int64_t kNearBytes = 4096;
  HWY_UNROLL(4)
  for (int line = 0; line < kLines; ++line) {
    __builtin_prefetch(fetch + line * fetch_step / kLines, 0, 2);
    if (W::kStreamed) __builtin_prefetch(w + kNearBytes + line * 64, 0, 3);
  }
}

// Rows of group `group` in a tile of `rows` rows: the last may have less than the others.
constexpr int RowsOfGroup(int rows, int group) {
  return std::clamp(rows - group * kGroupRows, 0, kGroupRows);
}

// sums[row][v] += x[row][input] * weights[v], for the vectors of the tile.
template <class W, int kRows, int kVectors>
HWY_INLINE void AddInput(const float* const (&groups)[kTileGroups], int64_t input,
                         const V (&weights)[kVectors], V (&sums)[kRows][kVectors]) {
  HWY_UNROLL(12)
  for (int row = 0; row < kRows; ++row) {
    const int group = row / kGroupRows;
    const int width = RowsOfGroup(kRows, group);
    const V x = hn::Set(F32(), groups[group][input * width + row % kGroupRows]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sums[row][v] = W::MulAdd(x, weights[v], sums[row][v]);
  }
}

// Loads the sums of kVectors vectors of outputs, from the output `output` on.
template <int kRows, int kVectors>
HWY_INLINE void LoadSums(const TileArgs& args, int output, V (&sums)[kRows][kVectors]) {
  HWY_UNROLL(12)
  for (int row = 0; row < kRows; ++row) {
    const float* at = args.sums + row * kPanelOutputs + output;
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      sums[row][v] = args.first ? hn::Zero(F32()) : hn::Load(F32(), at + v * kLanes);
    }
  }
}

template <int kRows, int kVectors>
HWY_INLINE void StoreTileSums(const TileArgs& args, int output, const V (&sums)[kRows][kVectors]) {
  HWY_UNROLL(12)
  for (int row = 0; row < kRows; ++row) {
    float* at = args.sums + row * kPanelOutputs + output;
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) hn::Store(sums[row][v], F32(), at + v * kLanes);
  }
}

// Each sum is one chain of fused multiply-adds in the order of the inputs, whatever the tile.
template <class W, int kRows>
void Tile(const TileArgs& args) {
  constexpr int kVectors = TileVectors<W>(kRows);
  const float* groups[kTileGroups];
  for (int g = 0; g < kTileGroups; ++g) {
    groups[g] = args.x + g * kGroupRows * args.num_inputs;
  }
  for (int output = 0; output < kPanelOutputs; output += kVectors * kLanes) {
    const std::byte* w = args.weights + output * W::kOutputStride;
    const std::byte* fetch = args.fetch;
    V sums[kRows][kVectors];
    LoadSums(args, output, sums);
    int64_t input = 0;
    for (; input + 2 <= args.num_inputs; input += 2) {
      V even[kVectors], odd[kVectors];
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        W::LoadPair(w + v * kLanes * W::kOutputStride, even[v], odd[v]);
      }
      FetchAhead<W>(w, fetch, args.fetch_step);
      AddInput<W>(groups, input, even, sums);
      AddInput<W>(groups, input + 1, odd, sums);
      w += 2 * kPanelOutputs * W::kBytes;
      fetch += args.fetch_step;
    }
    if (input < args.num_inputs) {
      V weights[kVectors];
      for (int v = 0; v < kVectors; ++v) {
        weights[v] = W::LoadOne(w + v * kLanes * W::kOutputStride);
      }
      AddInput<W>(groups, input, weights, sums);
    }
    StoreTileSums(args, output, sums);
  }
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_
