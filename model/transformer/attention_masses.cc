#include "model/transformer/attention_masses.h"

#include <utility>

#include "base/status.h"
#include "model/transformer/activations.h"

namespace tandem {
namespace {

// The arguments for the attention of one sequence, as if it were alone in its batch.
AttentionArgs AttentionOfOne(const AttentionArgs& all, int32_t sequence,
                             const StagedSpan<int32_t>& starts) {
  const auto index = static_cast<size_t>(sequence);
  const int64_t first = all.query_starts[index];
  const int64_t rows = all.query_starts[index + 1] - first;
  AttentionArgs one = all;
  one.q = Rows(all.q, first, rows);
  one.out = Rows(all.out, first, rows);
  one.lse = Rows(all.lse, first, rows);
  one.query_starts = starts;
  one.context_lens = all.context_lens.subspan(index, 1);
  one.block_tables = all.block_tables.Sequences(index, 1);
  one.plan = {};
  return one;
}

}  // namespace

absl::StatusOr<AttentionMasses> AttentionMasses::Create(const ModelConfig& config,
                                                        const TransformerLimits& limits,
                                                        Device& device) {
  const int64_t lse_floats = int64_t{limits.max_tokens} * config.num_heads;
  const int64_t sums = int64_t{config.num_kv_heads} * limits.max_context_tokens;
  ASSIGN_OR_RETURN(DeviceBuffer memory,
                   device.Allocate(static_cast<size_t>(lse_floats + sums) * sizeof(float)));
  return AttentionMasses(std::move(memory), config.num_heads, lse_floats);
}

size_t AttentionMasses::StagingBytes(const TransformerLimits& limits) {
  constexpr size_t kAlignment = 64;
  return 2 * static_cast<size_t>(limits.max_sequences) * sizeof(int32_t) + kAlignment;
}

void AttentionMasses::Begin(const ForwardBatch& batch, StepStaging& staging) {
  requests_ = batch.masses;
  if (requests_.empty()) return;
  starts_.clear();
  for (const MassRequest& request : requests_) {
    const auto index = static_cast<size_t>(request.sequence);
    starts_.push_back(0);
    starts_.push_back(batch.query_starts[index + 1] - batch.query_starts[index]);
  }
  staged_starts_ = staging.Add(std::span<const int32_t>(starts_));
}

TensorView AttentionMasses::Lse(int64_t num_rows) const {
  if (!wanted()) return {};
  return TensorView(memory_.data(), DType::kF32, {num_rows, num_heads_});
}

absl::Status AttentionMasses::Queue(Stream& stream, Ops& ops, const AttentionArgs& chunks) const {
  float* const sums = reinterpret_cast<float*>(memory_.data()) + lse_floats_;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const MassRequest& request = requests_[i];
    const AttentionArgs one =
        AttentionOfOne(chunks, request.sequence, staged_starts_.subspan(2 * i, 2));
    const int64_t kv_heads = chunks.pool.num_kv_heads;
    const int64_t context = chunks.context_lens[static_cast<size_t>(request.sequence)];
    RETURN_IF_ERROR(
        ops.ColumnMass(stream, {.attention = one,
                                .last_rows = request.last_rows,
                                .rows_behind = request.rows_behind,
                                .decay = request.decay,
                                .out = TensorView(sums, DType::kF32, {1, kv_heads, context})}));
    const auto size = static_cast<size_t>(kv_heads * context);
    const auto out =
        std::as_writable_bytes(request.out.subspan(static_cast<size_t>(chunks.layer) * size, size));
    RETURN_IF_ERROR(stream.Copy(out, std::as_bytes(std::span<const float>(sums, size))));
  }
  return absl::OkStatus();
}

}  // namespace tandem
