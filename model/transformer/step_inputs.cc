#include "model/transformer/step_inputs.h"

#include <numeric>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// The bytes of the arrays of the largest batch, each rounded up to the staging's alignment.
size_t CapacityBytes(const TransformerLimits& limits) {
  constexpr size_t kArrays = 9;
  constexpr size_t kAlignment = 64;
  const auto rows = static_cast<size_t>(limits.max_tokens);
  const auto sequences = static_cast<size_t>(limits.max_sequences);
  const size_t blocks = sequences * static_cast<size_t>(limits.max_blocks_per_sequence);
  const size_t per_row = 2 * sizeof(int32_t) + sizeof(int64_t) + sizeof(BlockPair);
  const size_t per_sequence = 3 * sizeof(int32_t);
  return rows * per_row + (sequences + 1) * per_sequence + (rows + 1) * sizeof(int32_t) +
         blocks * sizeof(int32_t) + kArrays * kAlignment;
}

// Copies `from` into `into` and pads it with `filler` to `size` elements.
template <class T>
std::span<const T> FilledUp(std::span<const T> from, size_t size, T filler, std::vector<T>& into) {
  into.assign(from.begin(), from.end());
  into.resize(size, filler);
  return into;
}

}  // namespace

absl::StatusOr<std::unique_ptr<InputStage>> InputStage::Create(const TransformerLimits& limits,
                                                               size_t plan_bytes, Device& device) {
  ASSIGN_OR_RETURN(std::unique_ptr<StepStaging> staging,
                   StepStaging::Create(device, CapacityBytes(limits) + plan_bytes));
  std::unique_ptr<InputStage> stage(new InputStage(std::move(staging)));
  stage->decode_starts_.resize(static_cast<size_t>(limits.max_tokens) + 1);
  std::iota(stage->decode_starts_.begin(), stage->decode_starts_.end(), 0);
  return stage;
}

absl::StatusOr<StepInputs> InputStage::AddDecodes(const ForwardBatch& batch, int64_t num_rows) {
  const auto rows = static_cast<size_t>(num_rows);
  const int32_t end = batch.block_tables.starts.back();
  ForwardBatch filled = batch;
  filled.token_ids = FilledUp<int32_t>(batch.token_ids, rows, 0, token_ids_);
  filled.positions = FilledUp<int32_t>(batch.positions, rows, 0, positions_);
  filled.slots = FilledUp<int64_t>(batch.slots, rows, -1, slots_);
  filled.context_lens = FilledUp<int32_t>(batch.context_lens, rows, 0, context_lens_);
  filled.block_tables.starts =
      FilledUp<int32_t>(batch.block_tables.starts.host(), rows + 1, end, table_starts_);
  filled.query_starts = std::span<const int32_t>(decode_starts_).first(rows + 1);
  filled.num_decodes = static_cast<int32_t>(num_rows);
  return Add(filled);
}

// Stages the arrays of a batch. Block ids and copies come last, because only their lengths differ
// among batches with equal numbers of sequences. A recorded pass reads no array after the block
// ids, so the addresses it reads are fixed.
absl::StatusOr<StepInputs> InputStage::Add(const ForwardBatch& batch) {
  const auto decodes = static_cast<size_t>(batch.num_decodes);
  const size_t chunks = batch.context_lens.size() - decodes;
  RETURN_IF_ERROR(staging_->Begin());
  StepInputs inputs;
  inputs.num_rows = static_cast<int64_t>(batch.token_ids.size());
  inputs.token_ids = staging_->Add(batch.token_ids);
  inputs.positions = staging_->Add(batch.positions);
  inputs.slots = staging_->Add(batch.slots);
  const auto starts = staging_->Add(batch.query_starts.first(chunks + 1));
  const auto decode_starts =
      staging_->Add(std::span<const int32_t>(decode_starts_).first(decodes + 1));
  const auto lens = staging_->Add(batch.context_lens);
  BlockTables tables;
  tables.starts = staging_->Add(batch.block_tables.starts.host());
  tables.ids = staging_->Add(batch.block_tables.ids.host());
  inputs.copies = staging_->Add(batch.copies);
  inputs.rounded = batch.rounded;

  const int64_t chunk_rows = batch.query_starts[chunks];
  inputs.chunks = {.first_row = 0,
                   .num_rows = chunk_rows,
                   .query_starts = starts,
                   .context_lens = lens.first(chunks),
                   .block_tables = tables.Sequences(0, chunks)};
  inputs.decodes = {.first_row = chunk_rows,
                    .num_rows = batch.num_decodes,
                    .query_starts = decode_starts,
                    .context_lens = lens.last(decodes),
                    .block_tables = tables.Sequences(chunks, decodes)};
  return inputs;
}

}  // namespace tandem
