// The register tile of the matrix product whose weights are codes (kernels/weight_format.h): every
// code becomes the f32 product of itself and its scale, then it is multiplied as any other weight.
// Included once per vector target.

#if defined(TANDEM_KERNELS_CPU_GEMM_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_GEMM_CODES_INL_H_
#undef TANDEM_KERNELS_CPU_GEMM_CODES_INL_H_
#else
#define TANDEM_KERNELS_CPU_GEMM_CODES_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_job.h"
#include "kernels/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// What is common to weights that are codes.
struct CodedWeights {
  static constexpr bool kHasCodes = true;
  static constexpr int64_t kInputsPerWord = 1;
  static constexpr bool kWidens = true;
  using Widened = F32Weights;
  static constexpr int kSinglePassRows = 2;  // few, because scales take registers, too
  static constexpr int64_t kInputBytes = kCodeGroupBytes / kCodeGroupInputs;  // on average
  static_assert(kCodeGroupBytes % kCodeGroupInputs == 0);
  static_assert(kBlockInputs % kCodeGroupInputs == 0, "a block begins with a group");

  static HWY_INLINE V MulAdd(V x, V weights, V sum) { return FusedMulAdd(x, weights, sum); }
  static HWY_INLINE auto Load(const std::byte* codes) {
    return hn::LoadU(hn::Rebind<int8_t, F32>(), reinterpret_cast<const int8_t*>(codes));
  }
};

// Numbers() are the codes of one vector of outputs at one input, times 1 / kUnit.
struct Int8Weights : CodedWeights {
  static constexpr float kUnit = 1;
  static HWY_INLINE V Numbers(const std::byte* codes) {
    return hn::ConvertTo(F32(), hn::PromoteTo(hn::RebindToSigned<F32>(), Load(codes)));
  }
};

// Widens e4m3 by way of f16, whose exponents go 8 further down: the least numbers of e4m3 are no
// special case then, as they would be for an f32 made of their bits.
struct F8Weights : CodedWeights {
  static constexpr float kUnit = 256;
  static HWY_INLINE V Numbers(const std::byte* codes) {
    const hn::Rebind<int16_t, F32> i16;
    const auto sign_and_number = hn::Set(i16, static_cast<int16_t>(0xBFFF));
    const auto halves = hn::And(hn::ShiftLeft<7>(hn::PromoteTo(i16, Load(codes))), sign_and_number);
    return hn::PromoteTo(F32(), hn::BitCast(hn::Rebind<hwy::float16_t, F32>(), halves));
  }
};

// Loads the scales of kVectors vectors of outputs, from `output` on, and multiplies them by `unit`.
template <int kVectors>
HWY_INLINE void LoadScales(const std::byte* group, int output, float unit, V (&scales)[kVectors]) {
  const auto* bits = reinterpret_cast<const uint16_t*>(group) + output;
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) {
    const auto wide = hn::PromoteTo(hn::RebindToUnsigned<F32>(),
                                    hn::LoadU(hn::Rebind<uint16_t, F32>(), bits + v * kLanes));
    scales[v] = hn::BitCast(F32(), hn::ShiftLeft<16>(wide));
    if (unit != 1) scales[v] = hn::Mul(scales[v], hn::Set(F32(), unit));
  }
}

// Makes the weights of kVectors vectors of outputs at one input from their codes and scales.
template <class W, int kVectors>
HWY_INLINE void LoadWeights(const std::byte* codes, const V (&scales)[kVectors],
                            V (&weights)[kVectors]) {
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) {
    weights[v] = hn::Mul(W::Numbers(codes + v * kLanes), scales[v]);
  }
}

// The tile of weights that are codes. As in Tile, each sum is one chain of fused multiply-adds in
// the order of the inputs.
template <class W, int kRows>
void CodesTile(const TileArgs& args) {
  constexpr int kVectors = TileVectors<W>(kRows);
  const float* groups[kTileGroups];
  for (int g = 0; g < kTileGroups; ++g) {
    groups[g] = args.x + g * kGroupRows * args.num_inputs;
  }
  for (int output = 0; output < kPanelOutputs; output += kVectors * kLanes) {
    const std::byte* group = args.weights;
    const std::byte* fetch = args.fetch;
    V sums[kRows][kVectors];
    LoadSums(args, output, sums);
    for (int64_t first = 0; first < args.num_inputs; first += kCodeGroupInputs) {
      V scales[kVectors];
      LoadScales(group, output, W::kUnit, scales);
      const std::byte* codes = group + kCodesOffset + output;
      const int64_t end = std::min(first + kCodeGroupInputs, args.num_inputs);
      for (int64_t input = first; input < end; ++input) {
        V weights[kVectors];
        LoadWeights<W>(codes, scales, weights);
        AddInput<W>(groups, input, weights, sums);
        if (input % 2 == 0) {
          __builtin_prefetch(fetch, 0, 2);
          fetch += args.fetch_step;
        }
        codes += kPanelOutputs;
      }
      group += kCodeGroupBytes;
    }
    StoreTileSums(args, output, sums);
  }
}

// Widens one block of a panel of codes to f32, [input][output].
template <class W>
void WidenCodes(const std::byte* group, int64_t num_inputs, float* widened) {
  constexpr int kVectors = 2;
  for (int64_t first = 0; first < num_inputs; first += kCodeGroupInputs) {
    const int64_t count = std::min(kCodeGroupInputs, num_inputs - first);
    for (int output = 0; output < kPanelOutputs; output += kVectors * kLanes) {
      V scales[kVectors];
      LoadScales(group, output, W::kUnit, scales);
      for (int64_t i = 0; i < count; ++i) {
        V weights[kVectors];
        LoadWeights<W>(group + kCodesOffset + i * kPanelOutputs + output, scales, weights);
        for (int v = 0; v < kVectors; ++v) {
          hn::Store(weights[v], F32(), widened + i * kPanelOutputs + output + v * kLanes);
        }
      }
    }
    group += kCodeGroupBytes;
    widened += count * kPanelOutputs;
  }
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_GEMM_CODES_INL_H_
