#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "hwy/aligned_allocator.h"
#include "kernels/cpu/gemm_job.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/processor.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/gemm_coded_pairs-inl.h"
#include "kernels/cpu/gemm_codes-inl.h"
#include "kernels/cpu/gemm_out-inl.h"
#include "kernels/cpu/gemm_pairs-inl.h"
#include "kernels/cpu/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu::HWY_NAMESPACE {

using TileFunction = void (*)(const TileArgs&);

// Tile functions by number of rows, from 1.
template <class W, int... kRowsLessOne>
constexpr std::array<TileFunction, kTileRows> MakeTiles(
    std::integer_sequence<int, kRowsLessOne...>) {
  if constexpr (W::kHasCodes && W::kInputsPerWord == 2) {
    return {&CodedPairsTile<W, kRowsLessOne + 1>...};
  } else if constexpr (W::kHasCodes) {
    return {&CodesTile<W, kRowsLessOne + 1>...};
  } else {
    return {&Tile<W, kRowsLessOne + 1>...};
  }
}
template <class W>
constexpr auto kTiles = MakeTiles<W>(std::make_integer_sequence<int, kTileRows>());

// Packs num_inputs inputs of kRows rows, `stride` apart, as [word][row].
template <class Words, int kRows>
void Interleave(const float* rows, int64_t stride, int64_t num_inputs, float* packed) {
  const F32 d;
  const auto load = [&](int64_t row, int64_t word) HWY_ATTR {
    return Words::Load(rows + row * stride + word * Words::kInputs);
  };
  int64_t word = 0;
  for (; (word + kLanes) * Words::kInputs <= num_inputs; word += kLanes) {
    float* to = packed + word * kRows;
    if constexpr (kRows == 1) hn::StoreU(load(0, word), d, to);
    if constexpr (kRows == 2) hn::StoreInterleaved2(load(0, word), load(1, word), d, to);
    if constexpr (kRows == 3) {
      hn::StoreInterleaved3(load(0, word), load(1, word), load(2, word), d, to);
    }
    if constexpr (kRows == 4) {
      hn::StoreInterleaved4(load(0, word), load(1, word), load(2, word), load(3, word), d, to);
    }
  }
  for (; word * Words::kInputs < num_inputs; ++word) {
    const int64_t input = word * Words::kInputs;
    for (int64_t row = 0; row < kRows; ++row) {
      packed[word * kRows + row] = Words::LoadOne(rows + row * stride + input, num_inputs - input);
    }
  }
}

template <class Words>
void PackGroupAs(const TensorView& x, int64_t first_row, int64_t first_input, int64_t num_inputs,
                 float* packed) {
  static_assert(kGroupRows == 4);
  constexpr decltype(&Interleave<Words, 1>) kByRows[] = {
      Interleave<Words, 1>, Interleave<Words, 2>, Interleave<Words, 3>, Interleave<Words, 4>};
  const int64_t num_rows = std::min<int64_t>(kGroupRows, x.rows() - first_row);
  kByRows[num_rows - 1](x.Row<const float>(first_row) + first_input, x.row_stride, num_inputs,
                        packed);
}

// Packs num_inputs inputs of the group of rows of x that begins at first_row.
void PackGroup(const TensorView& x, int64_t first_row, int64_t first_input, int64_t num_inputs,
               bool has_pairs, float* packed) {
  has_pairs ? PackGroupAs<RoundedPairs>(x, first_row, first_input, num_inputs, packed)
            : PackGroupAs<FloatWords>(x, first_row, first_input, num_inputs, packed);
}

// Widens one block of a panel to f32, [input][output].
template <class W>
void Widen(const std::byte* weights, int64_t num_inputs, float* widened) {
  const F32 d;
  for (int64_t input = 0; input < num_inputs; input += 2) {
    for (int output = 0; output < kPanelOutputs; output += kLanes) {
      const std::byte* at = weights + output * W::kOutputStride;
      float* to = widened + output;
      if (input + 2 <= num_inputs) {
        V even, odd;
        W::LoadPair(at, even, odd);
        hn::Store(even, d, to);
        hn::Store(odd, d, to + kPanelOutputs);
      } else {
        hn::Store(W::LoadOne(at), d, to);
      }
    }
    weights += 2 * kPanelOutputs * W::kBytes;
    widened += 2 * kPanelOutputs;
  }
}

// With more rows than this, widening a block once is cheaper than widening it in each tile.
constexpr int64_t kWideningRows = kHasManyRegisters ? 3 * kTileRows : kTileRows;

// Sets what a tile fetches meanwhile. A single tile fetches its own weights from far ahead. Of
// several, the first two share the block that comes next, so that memory works all the time rather
// than at the start of each block.
template <class W>
void SetFetch(const std::byte* block, int64_t tile_index, int64_t num_tiles, TileArgs& tile) {
  constexpr int64_t kFarBytes = 16384;
  constexpr int64_t kInputBytes = W::kInputBytes;
  if (num_tiles == 1) {
    tile.fetch = block + kFarBytes;
    tile.fetch_step = 2 * kInputBytes;
  } else {
    tile.fetch =
        block + kBlockInputs * kInputBytes + tile_index * tile.num_inputs / 2 * kInputBytes;
    tile.fetch_step = tile_index < 2 ? kInputBytes : 0;
  }
}

// Multiplies all rows of the job by one panel.
template <class W>
void MultiplyPanel(const GemmJob& job, int64_t panel, GemmScratch& scratch) {
  const int64_t k = (job.weight.k + W::kInputsPerWord - 1) / W::kInputsPerWord;  // in words of x
  const int64_t num_groups = (job.num_rows + kGroupRows - 1) / kGroupRows;
  const int64_t tile_groups = TileGroups(job.num_rows);
  const int64_t num_tiles = (num_groups + tile_groups - 1) / tile_groups;
  const bool widen = job.num_rows > kWideningRows && W::kWidens;
  const bool cached = widen || (num_tiles > 1 && !W::kWidens);
  using Cached = std::conditional_t<W::kWidens, typename W::Widened, W>;
  const auto& tiles = cached ? kTiles<InCache<Cached>> : kTiles<W>;
  const std::byte* weights = job.weight.data + panel * PanelBytes(job.weight.format, job.weight.k);

  const int64_t block_inputs = InputsPerBlock(job.num_rows, k);
  for (int64_t input = 0; input < k; input += block_inputs) {
    TileArgs tile;
    tile.num_inputs = std::min(block_inputs, k - input);
    tile.first = input == 0;
    const std::byte* block = weights + input * W::kInputBytes;
    tile.weights = block;
    tile.groups = block;
    if (widen) {
      if constexpr (W::kHasCodes && W::kInputsPerWord == 2) {
        WidenToWords<W>(block, tile.num_inputs, scratch.weights);
      } else if constexpr (W::kHasCodes) {
        WidenCodes<W>(block, tile.num_inputs, scratch.weights);
      } else {
        Widen<W>(block, tile.num_inputs, scratch.weights);
      }
      tile.weights = reinterpret_cast<const std::byte*>(scratch.weights);
    }
    for (int64_t t = 0; t < num_tiles; ++t) {
      const int64_t first_row = t * num_groups / num_tiles * kGroupRows;
      const int64_t end_row = (t + 1) * num_groups / num_tiles * kGroupRows;
      const int64_t num_rows = std::min(end_row, job.num_rows) - first_row;
      if (input + block_inputs >= k) FetchOut(job, panel, first_row, num_rows);
      SetFetch<W>(block, t, num_tiles, tile);
      tile.x = job.x + input * job.num_rows + first_row * tile.num_inputs;
      tile.sums = scratch.sums + first_row * kPanelOutputs;
      tiles[num_rows - 1](tile);
    }
  }
  StoreSums(job, panel, scratch.sums);
}

template <class Pairs>
void MultiplyPairs(const GemmJob& job, int64_t panel, GemmScratch& scratch) {
  switch (job.weight.format.dtype()) {
    case DType::kI8:
      return MultiplyPanel<CodedPairs<Int8Weights, Pairs>>(job, panel, scratch);
    case DType::kF8E4M3:
      return MultiplyPanel<CodedPairs<F8Weights, Pairs>>(job, panel, scratch);
    default:
      return MultiplyPanel<Pairs>(job, panel, scratch);
  }
}

void MultiplyFloats(const GemmJob& job, int64_t panel, GemmScratch& scratch) {
  switch (job.weight.format.dtype()) {
    case DType::kI8:
      return MultiplyPanel<Int8Weights>(job, panel, scratch);
    case DType::kF8E4M3:
      return MultiplyPanel<F8Weights>(job, panel, scratch);
    case DType::kBF16:
      return MultiplyPanel<BF16Weights>(job, panel, scratch);
    case DType::kF16:
      return MultiplyPanel<F16Weights>(job, panel, scratch);
    default:
      return MultiplyPanel<F32Weights>(job, panel, scratch);
  }
}

void MultiplyPanels(const GemmJob& job, int64_t first_panel, int64_t end_panel,
                    GemmScratch& scratch) {
  auto* multiply = job.has_pairs ? MultiplyPairs<BF16Pairs> : MultiplyFloats;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86_64
  if (job.has_pairs && HasBF16Dots()) multiply = MultiplyPairs<NativeBF16Pairs>;
#endif
  for (int64_t panel = first_panel; panel < end_panel; ++panel) multiply(job, panel, scratch);
}

}  // namespace tandem::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(MultiplyPanels);
HWY_EXPORT(PackGroup);

namespace {

// Packing fewer activations than this is quicker than sharing the work.
constexpr int64_t kParallelPackElements = 32768;

// Memory for packed activations. Grows to the largest block that its thread has seen.
class ActivationBuffer {
 public:
  float* Floats(int64_t count) {
    if (count > capacity_) {
      data_ = hwy::AllocateAligned<float>(count);
      capacity_ = count;
    }
    return data_.get();
  }

 private:
  hwy::AlignedFreeUniquePtr<float[]> data_;
  int64_t capacity_ = 0;
};

// Packs rows of x in the order of GemmJob::x. A single row of floats has it already.
const float* PackRows(ThreadPool& pool, const TensorView& x, int64_t first_row, int64_t num_rows,
                      bool has_pairs) {
  const int64_t k = x.shape[1];
  if (num_rows == 1 && !has_pairs) return x.Row<const float>(first_row);
  const int64_t inputs_per_word = has_pairs ? 2 : 1;
  const int64_t num_words = (k + inputs_per_word - 1) / inputs_per_word;
  const int64_t block_words = InputsPerBlock(num_rows, num_words);
  thread_local ActivationBuffer buffer;
  float* packed = buffer.Floats(num_rows * num_words);
  const auto pack = [&](int64_t group, int) {
    const int64_t row = group * kGroupRows;
    for (int64_t word = 0; word < num_words; word += block_words) {
      const int64_t words = std::min(block_words, num_words - word);
      const int64_t input = word * inputs_per_word;
      float* to = packed + word * num_rows + row * words;
      HWY_DYNAMIC_DISPATCH(PackGroup)
      (x, first_row + row, input, std::min(words * inputs_per_word, k - input), has_pairs, to);
    }
  };
  const int64_t num_groups = (num_rows + kGroupRows - 1) / kGroupRows;
  if (num_rows * k >= kParallelPackElements) {
    pool.ParallelFor(num_groups, pack);
  } else {
    for (int64_t group = 0; group < num_groups; ++group) pack(group, 0);
  }
  return packed;
}

void MultiplyBlock(ThreadPool& pool, const GemmJob& job) {
  const int64_t num_panels = NumPanels(job.weight.n);
  const int64_t num_ranges = NumRanges(job, pool.num_threads());
  pool.ParallelFor(num_ranges, [&](int64_t range, int) {
    thread_local GemmScratch scratch;
    HWY_DYNAMIC_DISPATCH(MultiplyPanels)
    (job, range * num_panels / num_ranges, (range + 1) * num_panels / num_ranges, scratch);
  });
}

}  // namespace

absl::Status CpuOps::DoGemm(Stream&, const GemmArgs& args) {
  const int64_t num_rows = args.x.rows();
  if (num_rows == 0 || args.weight.n == 0) return absl::OkStatus();
  const WeightFormat format = args.weight.format;
  const bool has_pairs =
      compute_ == CpuCompute::kBF16 && (format == DType::kBF16 || format.has_codes());
  const int64_t block_rows = RowsPerBlock(num_rows, args.weight.k);
  for (int64_t row = 0; row < num_rows; row += block_rows) {
    GemmJob job{ProductOfRows(args, row, std::min(block_rows, num_rows - row))};
    job.has_pairs = has_pairs;
    job.x = PackRows(pool_, args.x, row, job.num_rows, has_pairs);
    MultiplyBlock(pool_, job);
  }
  return absl::OkStatus();
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
