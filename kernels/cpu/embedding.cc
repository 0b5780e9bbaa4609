#include <cstring>

#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/panel.h"
#include "kernels/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/embedding.cc"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::cpu {
namespace HWY_NAMESPACE {

// Widens one row of a packed matrix. Its elements lie a panel's width apart, so they are first
// collected into vectors.
template <class T>
void EmbeddingRow(const PackedMatrix& table, int64_t row, float* HWY_RESTRICT out) {
  const F32Tag d;
  const auto* data = reinterpret_cast<const T*>(table.data);
  HWY_ALIGN T neighbours[kLanes] = {};
  HWY_ALIGN float wide[kLanes];
  for (int64_t i = 0; i < table.k; i += kLanes) {
    const int64_t count = HWY_MIN(int64_t{kLanes}, table.k - i);
    for (int64_t j = 0; j < count; ++j) neighbours[j] = data[PackedIndex(table, row, i + j)];
    hn::Store(LoadWide(d, neighbours), d, wide);
    std::memcpy(out + i, wide, static_cast<size_t>(count) * sizeof(float));
  }
}

// Widens one row of a quantised matrix by the same products of code and scale as a matrix product
// uses.
void CodedEmbeddingRow(const PackedMatrix& table, int64_t row, float* HWY_RESTRICT out) {
  const int64_t lane = row % kPanelOutputs;
  const std::byte* group = table.data + row / kPanelOutputs * PanelBytes(table.format, table.k);
  for (int64_t first = 0; first < table.k; first += kCodeGroupInputs) {
    uint16_t bits;
    std::memcpy(&bits, group + lane * static_cast<int64_t>(sizeof(bits)), sizeof(bits));
    const float scale = FloatOfBf16(bits);
    const int64_t count = HWY_MIN(kCodeGroupInputs, table.k - first);
    for (int64_t i = 0; i < count; ++i) {
      const auto code = static_cast<uint8_t>(group[CodeIndex(lane, i)]);
      const bool is_f8 = table.format.dtype() == DType::kF8E4M3;
      out[first + i] =
          (is_f8 ? FloatOfF8(code) : static_cast<float>(static_cast<int8_t>(code))) * scale;
    }
    group += kCodeGroupBytes;
  }
}

void EmbeddingRows(const EmbeddingArgs& args, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t row = args.token_ids[static_cast<size_t>(t)];
    auto* out = args.out.Row<float>(t);
    if (args.table.format.has_codes()) {
      CodedEmbeddingRow(args.table, row, out);
    } else if (args.table.format.dtype() == DType::kBF16) {
      EmbeddingRow<hwy::bfloat16_t>(args.table, row, out);
    } else if (args.table.format.dtype() == DType::kF16) {
      EmbeddingRow<hwy::float16_t>(args.table, row, out);
    } else {
      EmbeddingRow<float>(args.table, row, out);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tandem::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tandem::cpu {

HWY_EXPORT(EmbeddingRows);

absl::Status CpuOps::DoEmbedding(Stream&, const EmbeddingArgs& args) {
  const auto rows = &HWY_DYNAMIC_DISPATCH(EmbeddingRows);
  ForRows(pool_, args.out.rows(), args.out.shape[1],
          [&](int64_t begin, int64_t end) { rows(args, begin, end); });
  return absl::OkStatus();
}

}  // namespace tandem::cpu
#endif  // HWY_ONCE
