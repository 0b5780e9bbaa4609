// The register tile of the matrix product. Included once per vector target.

#if defined(TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_
#undef TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_
#else
#define TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_job.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using V = hn::Vec<F32>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kTileOutputs = 2 * kLanes;  // two vectors: enough chains, few enough registers
// So many groups of rows that the sums of a tile fit the registers, of which AVX-512 and NEON have 32 and
// others 16.
constexpr int kTileGroups = kLanes == 16 || HWY_ARCH_ARM_A64 ? 3 : 1;
constexpr int kTileRows = kGroupRows * kTileGroups;

// One rounding on every target, so that all of them give the same bits.
HWY_INLINE V FusedMulAdd(V a, V b, V sum) {
#if HWY_NATIVE_FMA || !HWY_ARCH_X86
  return hn::MulAdd(a, b, sum);
#else
  HWY_ALIGN float lanes_a[kLanes], lanes_b[kLanes], lanes_sum[kLanes];
  hn::Store(a, F32(), lanes_a);
  hn::Store(b, F32(), lanes_b);
  hn::Store(sum, F32(), lanes_sum);
  for (int i = 0; i < kLanes; ++i) lanes_sum[i] = std::fma(lanes_a[i], lanes_b[i], lanes_sum[i]);
  return hn::Load(F32(), lanes_sum);
#endif
}

// What is common to weights that are floats of kElementBytes.
template <int64_t kElementBytes>
struct FloatWeights {
  static constexpr bool kIsInt8 = false;
  static constexpr bool kStreamed = true;
  static constexpr bool kWidens = kElementBytes < 4;
  static constexpr int64_t kBytes = kElementBytes;
  static constexpr int64_t kInputBytes = kPanelOutputs * kElementBytes;  // of a panel, at one input
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

// A block that Widen wrote to the scratch memory: it is in L1 already.
struct WidenedWeights : F32Weights {
  static constexpr bool kStreamed = false;
};

// Weights come from memory, each once: from far ahead into L2, where `fetch` says, so that enough
// requests are under way to fill the memory's bandwidth; from there into L1. Two inputs at a time.
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

// sums[row][j] += x[row][input] * (w0, w1), for the two vectors of the tile.
template <int kRows>
HWY_INLINE void AddInput(const float* const (&groups)[kTileGroups], int64_t input, V w0, V w1,
                         V (&sums)[kRows][2]) {
  HWY_UNROLL(12)
  for (int row = 0; row < kRows; ++row) {
    const int group = row / kGroupRows;
    const int width = RowsOfGroup(kRows, group);
    const V x = hn::Set(F32(), groups[group][input * width + row % kGroupRows]);
    sums[row][0] = FusedMulAdd(x, w0, sums[row][0]);
    sums[row][1] = FusedMulAdd(x, w1, sums[row][1]);
  }
}

// Each sum is one chain of fused multiply-adds in the order of the inputs, whatever the tile.
template <class W, int kRows>
void Tile(const TileArgs& args) {
  const float* groups[kTileGroups];
  for (int g = 0; g < kTileGroups; ++g) {
    groups[g] = args.x + g * kGroupRows * args.num_inputs;
  }
  for (int output = 0; output < kPanelOutputs; output += kTileOutputs) {
    const std::byte* w = args.weights + output * W::kOutputStride;
    const std::byte* fetch = args.fetch;
    V sums[kRows][2];
    HWY_UNROLL(12)
    for (int row = 0; row < kRows; ++row) {
      float* at = args.sums + row * kPanelOutputs + output;
      sums[row][0] = args.first ? hn::Zero(F32()) : hn::Load(F32(), at);
      sums[row][1] = args.first ? hn::Zero(F32()) : hn::Load(F32(), at + kLanes);
    }
    int64_t input = 0;
    for (; input + 2 <= args.num_inputs; input += 2) {
      V even0, odd0, even1, odd1;
      W::LoadPair(w, even0, odd0);
      W::LoadPair(w + kLanes * W::kOutputStride, even1, odd1);
      FetchAhead<W>(w, fetch, args.fetch_step);
      AddInput<kRows>(groups, input, even0, even1, sums);
      AddInput<kRows>(groups, input + 1, odd0, odd1, sums);
      w += 2 * kPanelOutputs * W::kBytes;
      fetch += args.fetch_step;
    }
    if (input < args.num_inputs) {
      const V w0 = W::LoadOne(w);
      const V w1 = W::LoadOne(w + kLanes * W::kOutputStride);
      AddInput<kRows>(groups, input, w0, w1, sums);
    }
    HWY_UNROLL(12)
    for (int row = 0; row < kRows; ++row) {
      float* at = args.sums + row * kPanelOutputs + output;
      hn::Store(sums[row][0], F32(), at);
      hn::Store(sums[row][1], F32(), at + kLanes);
    }
  }
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_GEMM_TILE_INL_H_
