#include <cstddef>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "model/transformer/transformer_state.h"

namespace tandem {

// Whether a batch can run as a graph: only decodes, each with logits, and no callback in between.
bool Transformer::State::CanRecord(const ForwardBatch& batch,
                                   const LayerStored& layer_stored) const {
  return can_record && !layer_stored && weights.addresses_are_fixed() &&
         std::ssize(batch.token_ids) == batch.num_decodes &&
         head_rows.size() == batch.token_ids.size() &&
         graphs.SizeFor(batch.num_decodes) <= limits.max_logit_rows;
}

absl::Status Transformer::State::ComputeRecorded(Stream& stream, const StepInputs& inputs,
                                                 const KvPoolView& pool) {
  const auto size = static_cast<int32_t>(inputs.num_rows);
  DecodeGraphs::Entry& entry = graphs.For(size, pool.data);
  // Row i of the logits belongs to row i of the batch, because every row is a decode with logits.
  const std::span<const int32_t> all = inputs.decodes.query_starts.host().first(size);
  const StepRows rows = {.kept = all, .head = all};
  if (!std::exchange(entry.warm, true)) return Compute(stream, inputs, rows, {}, pool, nullptr);
  if (entry.graph == nullptr) {
    RETURN_IF_ERROR(stream.BeginRecording());
    const absl::Status computed = Compute(stream, inputs, rows, {}, pool, nullptr);
    absl::StatusOr<std::unique_ptr<Graph>> graph = stream.EndRecording();
    RETURN_IF_ERROR(computed);
    ASSIGN_OR_RETURN(entry.graph, std::move(graph));
  }
  return stream.Launch(*entry.graph);
}

// Runs the pass twice: the first run is not recorded, the second one is.
absl::Status Transformer::State::RecordDecodes(Stream& stream, const KvPoolView& pool,
                                               int32_t rows) {
  const auto count = static_cast<size_t>(rows);
  const std::vector<int32_t> zeros(count + 1);
  const std::vector<int64_t> not_stored(count, -1);
  std::vector<int32_t> rising(count + 1);
  std::iota(rising.begin(), rising.end(), 0);
  const std::span<const int32_t> none(zeros.data(), count);
  const ForwardBatch batch = {.token_ids = none,
                              .positions = none,
                              .slots = not_stored,
                              .query_starts = rising,
                              .context_lens = none,
                              .block_tables = {.ids = {}, .starts = zeros},
                              .num_decodes = rows,
                              .logit_rows = std::span(rising).first(count)};
  for (int pass = 0; pass < 2; ++pass) {
    RETURN_IF_ERROR(Forward(stream, batch, pool, nullptr).status());
  }
  return stream.Synchronize();
}

}  // namespace tandem
