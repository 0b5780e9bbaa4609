// Products of weights that are codes and of activations that are rounded to bf16. A code is exact
// as a bf16, so the products of a group are summed as pairs of bf16, and the sum is multiplied by
// the group's scale. Included once per vector target.

#if defined(TANDEM_KERNELS_CPU_GEMM_CODED_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TANDEM_KERNELS_CPU_GEMM_CODED_PAIRS_INL_H_
#undef TANDEM_KERNELS_CPU_GEMM_CODED_PAIRS_INL_H_
#else
#define TANDEM_KERNELS_CPU_GEMM_CODED_PAIRS_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/gemm_codes-inl.h"
#include "kernels/cpu/gemm_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kGroupWords = kCodeGroupInputs / 2;

// Codes of `Codes`, multiplied as `Pairs` are. Where they are widened, a block of words lies in the
// scratch memory, and its scales with the codes.
template <class Codes, class Pairs, bool kWidened = false>
struct CodedPairs : CodedWeights {
  static constexpr bool kIsWidened = kWidened;
  static constexpr int64_t kInputsPerWord = 2;
  static constexpr int64_t kInputBytes = 2 * CodedWeights::kInputBytes;  // of a word
  static constexpr float kUnit = Codes::kUnit;
  using Widened = CodedPairs<Codes, Pairs, true>;
  static HWY_INLINE V MulAdd(V x, V weights, V sum) { return Pairs::MulAdd(x, weights, sum); }
  // Makes the words of a vector of outputs from its codes at two inputs, of which the first are at
  // `codes`.
  static HWY_INLINE V Words(const std::byte* codes) {
    const auto even = hn::BitCast(U32(), Codes::Numbers(codes));
    const auto odd = hn::BitCast(U32(), Codes::Numbers(codes + kPanelOutputs));
    const auto high = hn::And(odd, hn::Set(U32(), 0xFFFF0000u));
    return hn::BitCast(F32(), hn::Or(hn::ShiftRight<16>(even), high));
  }
};

// Adds the sums of a group, times its scales, to `sums`: sums = parts * scales + sums.
template <int kRows, int kVectors>
HWY_INLINE void AddParts(const V (&parts)[kRows][kVectors], const V (&scales)[kVectors], bool first,
                         float* sums) {
  HWY_UNROLL(12)
  for (int row = 0; row < kRows; ++row) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      float* at = sums + row * kPanelOutputs + v * kLanes;
      const V sum = first ? hn::Zero(F32()) : hn::Load(F32(), at);
      hn::Store(FusedMulAdd(parts[row][v], scales[v], sum), F32(), at);
    }
  }
}

// The tile of weights that are codes and activations of bf16. Each sum is one chain over the groups
// in the order of the inputs, and the sum of a group is one over its pairs.
template <class W, int kRows>
void CodedPairsTile(const TileArgs& args) {
  constexpr int kVectors = TileVectors<W>(kRows);
  const float* groups[kTileGroups];
  for (int g = 0; g < kTileGroups; ++g) {
    groups[g] = args.x + g * kGroupRows * args.num_inputs;
  }
  for (int output = 0; output < kPanelOutputs; output += kVectors * kLanes) {
    const std::byte* group = args.groups;
    const std::byte* fetch = args.fetch;
    for (int64_t first = 0; first < args.num_inputs; first += kGroupWords) {
      V parts[kRows][kVectors];
      for (auto& row : parts) std::fill_n(row, kVectors, hn::Zero(F32()));
      const std::byte* codes = group + kCodesOffset + output;
      const int64_t end = std::min(first + kGroupWords, args.num_inputs);
      for (int64_t word = first; word < end; ++word) {
        V weights[kVectors];
        HWY_UNROLL(4)
        for (int v = 0; v < kVectors; ++v) {
          const auto* widened = reinterpret_cast<const float*>(args.weights) +
                                word * kPanelOutputs + output + v * kLanes;
          weights[v] = W::kIsWidened ? hn::Load(F32(), widened) : W::Words(codes + v * kLanes);
        }
        AddInput<W>(groups, word, weights, parts);
        __builtin_prefetch(fetch, 0, 2);
        fetch += args.fetch_step / 2;
        codes += 2 * kPanelOutputs;
      }
      V scales[kVectors];
      LoadScales(group, output, W::kUnit, scales);
      AddParts(parts, scales, args.first && first == 0, args.sums + output);
      group += kCodeGroupBytes;
    }
  }
}

// Makes the codes of one block of a panel words, [word][output].
template <class W>
void WidenToWords(const std::byte* group, int64_t num_words, float* words) {
  for (int64_t first = 0; first < num_words; first += kGroupWords) {
    const std::byte* codes = group + kCodesOffset;
    const int64_t end = std::min(first + kGroupWords, num_words);
    for (int64_t word = first; word < end; ++word) {
      for (int output = 0; output < kPanelOutputs; output += kLanes) {
        hn::Store(W::Words(codes + output), F32(), words + word * kPanelOutputs + output);
      }
      codes += 2 * kPanelOutputs;
    }
    group += kCodeGroupBytes;
  }
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TANDEM_KERNELS_CPU_GEMM_CODED_PAIRS_INL_H_
