#include <cstddef>
#include <cstdint>
#include <iterator>

#include "base/status.h"
#include "model/transformer/transformer_state.h"

namespace tandem {

// Checks a batch. The engine builds it, so an error here is a bug. The error is returned instead of
// ending the process, because it affects only the requests of this batch.
absl::Status Transformer::State::CheckBatch(const ForwardBatch& batch) const {
  const auto rows = static_cast<int64_t>(batch.token_ids.size());
  const auto sequences = static_cast<int64_t>(batch.context_lens.size());
  if (rows < 1 || rows > limits.max_tokens) {
    return Internal("a step of {} tokens; this transformer takes 1 to {}", rows, limits.max_tokens);
  }
  if (std::ssize(batch.logit_rows) > limits.max_logit_rows) {
    return Internal("{} rows of logits; at most {}", batch.logit_rows.size(),
                    limits.max_logit_rows);
  }
  if (sequences > limits.max_sequences ||
      std::ssize(batch.block_tables.ids.host()) >
          int64_t{limits.max_sequences} * limits.max_blocks_per_sequence) {
    return Internal("{} sequences with {} blocks; at most {} of up to {}", sequences,
                    batch.block_tables.ids.size(), limits.max_sequences,
                    limits.max_blocks_per_sequence);
  }
  if (std::ssize(batch.copies) > rows) {
    return Internal("{} blocks to copy for {} tokens", batch.copies.size(), rows);
  }
  for (const RoundedRows& range : batch.rounded) {
    if (range.first_row >= 0 && range.num_rows >= 0 && range.num_rows <= rows - range.first_row) {
      continue;
    }
    return Internal("rows [{}, +{}) to round of {}", range.first_row, range.num_rows, rows);
  }
  int64_t free_from = 0;
  for (const RowRange& range : batch.scored) {
    if (range.first < free_from || range.count < 0 || range.count > rows - range.first) {
      return Internal("rows [{}, +{}) to score of {}: they must rise and be apart", range.first,
                      range.count, rows);
    }
    free_from = int64_t{range.first} + range.count;
  }
  if (!batch.sample_rows.empty() && batch.sample_rows.size() != batch.logit_rows.size()) {
    return Internal("{} rows to sample of {} rows of logits", batch.sample_rows.size(),
                    batch.logit_rows.size());
  }
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int64_t floor = i == 0 ? 0 : batch.logit_rows[i - 1];
    if (batch.logit_rows[i] < floor || batch.logit_rows[i] >= rows) {
      return Internal("logit_rows[{}] is {}: they must rise from 0 to {}", i, batch.logit_rows[i],
                      rows - 1);
    }
  }
  if (std::ssize(batch.positions) != rows || std::ssize(batch.slots) != rows ||
      std::ssize(batch.query_starts) != sequences + 1 || batch.query_starts.back() != rows ||
      batch.num_decodes < 0 || batch.num_decodes > sequences ||
      batch.block_tables.num_sequences() != sequences ||
      batch.query_starts[sequences - batch.num_decodes] != rows - batch.num_decodes) {
    return Internal(
        "the parts of a step's batch do not fit together: {} tokens, {} positions, {} "
        "slots, {} sequences, {} decodes",
        rows, batch.positions.size(), batch.slots.size(), sequences, batch.num_decodes);
  }
  return absl::OkStatus();
}

}  // namespace tandem
