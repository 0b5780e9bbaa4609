// The register tile of the matrix product whose weights are int8 (kernels/weight_format.h): every code
// becomes the f32 product of itself and its scale, then it is multiplied as any other weight. Included
// once per vector target.

#if defined(TANDEM_KERNELS_CPU_GEMM_INT8_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_GEMM_INT8_INL_H_
#undef TANDEM_KERNELS_CPU_GEMM_INT8_INL_H_
#else
#define TANDEM_KERNELS_CPU_GEMM_INT8_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_job.h"
#include "kernels/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

struct Int8Weights {
  static constexpr bool kIsInt8 = true;
  static constexpr bool kWidens = true;
  static constexpr int64_t kInputBytes = kInt8GroupBytes / kInt8GroupInputs;  // on average
  static_assert(kInt8GroupBytes % kInt8GroupInputs == 0);
  static_assert(kBlockInputs % kInt8GroupInputs == 0, "a block begins with a group");
};

// The scales of kVectors vectors of outputs, from `output` on.
template <int kVectors>
HWY_INLINE void LoadScales(const std::byte* group, int output, V (&scales)[kVectors]) {
  const auto* bits = reinterpret_cast<const uint16_t*>(group) + output;
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) {
    const auto wide = hn::PromoteTo(hn::RebindToUnsigned<F32>(),
                                    hn::LoadU(hn::Rebind<uint16_t, F32>(), bits + v * kLanes));
    scales[v] = hn::BitCast(F32(), hn::ShiftLeft<16>(wide));
  }
}

// The weights of these outputs at one input, whose codes begin at `codes`.
template <int kVectors>
HWY_INLINE void LoadWeights(const std::byte* codes, const V (&scales)[kVectors],
                            V (&weights)[kVectors]) {
  const hn::RebindToSigned<F32> i32;
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) {
    const auto* at = reinterpret_cast<const int8_t*>(codes) + v * kLanes;
    const auto code = hn::PromoteTo(i32, hn::LoadU(hn::Rebind<int8_t, F32>(), at));
    weights[v] = hn::Mul(hn::ConvertTo(F32(), code), scales[v]);
  }
}

// sums[row][v] += x[row][input] * weights[v], for the vectors of the tile.
template <int kRows, int kVectors>
HWY_INLINE void AddInputOf(const float* const (&groups)[kTileGroups], int64_t input,
                           const V (&weights)[kVectors], V (&sums)[kRows][kVectors]) {
  HWY_UNROLL(12)
  for (int row = 0; row < kRows; ++row) {
    const int group = row / kGroupRows;
    const int width = RowsOfGroup(kRows, group);
    const V x = hn::Set(F32(), groups[group][input * width + row % kGroupRows]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) sums[row][v] = FusedMulAdd(x, weights[v], sums[row][v]);
  }
}

// The sums of kVectors vectors of outputs, from the output `at` on.
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

// One row has too few chains of additions in two vectors to keep the adders busy.
constexpr int Int8TileVectors(int rows) {
  const int panel_vectors = kPanelOutputs / kLanes;
  return std::min(panel_vectors, rows <= 2 ? 4 : 2);
}

// As Tile: each sum is one chain of fused multiply-adds in the order of the inputs.
template <int kRows>
void Int8Tile(const TileArgs& args) {
  constexpr int kVectors = Int8TileVectors(kRows);
  const float* groups[kTileGroups];
  for (int g = 0; g < kTileGroups; ++g) {
    groups[g] = args.x + g * kGroupRows * args.num_inputs;
  }
  for (int output = 0; output < kPanelOutputs; output += kVectors * kLanes) {
    const std::byte* group = args.weights;
    const std::byte* fetch = args.fetch;
    V sums[kRows][kVectors];
    LoadSums(args, output, sums);
    for (int64_t first = 0; first < args.num_inputs; first += kInt8GroupInputs) {
      V scales[kVectors];
      LoadScales(group, output, scales);
      const std::byte* codes = group + kInt8CodesOffset + output;
      const int64_t end = std::min(first + kInt8GroupInputs, args.num_inputs);
      for (int64_t input = first; input < end; ++input) {
        V weights[kVectors];
        LoadWeights(codes, scales, weights);
        AddInputOf(groups, input, weights, sums);
        if (input % 2 == 0) {
          __builtin_prefetch(fetch, 0, 2);
          fetch += args.fetch_step;
        }
        codes += kPanelOutputs;
      }
      group += kInt8GroupBytes;
    }
    StoreTileSums(args, output, sums);
  }
}

// One block of a panel as f32, [input][output].
inline void WidenInt8(const std::byte* group, int64_t num_inputs, float* widened) {
  constexpr int kVectors = 2;
  for (int64_t first = 0; first < num_inputs; first += kInt8GroupInputs) {
    const int64_t count = std::min(kInt8GroupInputs, num_inputs - first);
    for (int output = 0; output < kPanelOutputs; output += kVectors * kLanes) {
      V scales[kVectors];
      LoadScales(group, output, scales);
      for (int64_t i = 0; i < count; ++i) {
        V weights[kVectors];
        LoadWeights(group + kInt8CodesOffset + i * kPanelOutputs + output, scales, weights);
        for (int v = 0; v < kVectors; ++v) {
          hn::Store(weights[v], F32(), widened + i * kPanelOutputs + output + v * kLanes);
        }
      }
    }
    group += kInt8GroupBytes;
    widened += count * kPanelOutputs;
  }
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_GEMM_INT8_INL_H_
