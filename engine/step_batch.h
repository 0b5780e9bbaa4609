#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "kernels/op_args.h"
#include "model/transformer/forward.h"

namespace tandem {

// The ragged arrays of one step: tokens, positions, block tables and sampling rows of all its
// chunks, one behind the other. They keep their memory from step to step, so that a steady state
// allocates nothing here. Thread: engine.
class StepBatch {
 public:
  void Clear();
  // Adds the tokens of a chunk, whose blocks are in its table, and the rows that it samples.
  void Append(const Chunk& chunk);
  // Makes the batch hold only the last token of a chunk, whose KV is in the pool already and is not
  // written again.
  void AssignLastToken(const Chunk& chunk);
  // Makes the batch hold a prompt of `count` tokens in the first blocks of the pool, with one row
  // to sample. It stores nothing.
  void AssignDummy(int32_t count, int32_t block_tokens);

  // The arrays of the batch, as a forward pass takes them; valid until the batch changes.
  ForwardBatch view(int32_t num_decodes, std::span<const BlockPair> copies,
                    std::span<const MassRequest> masses) const;
  const std::vector<SampleRow>& sample_rows() const { return sample_rows_; }
  // The rows of the `index`-th chunk whose logits give log-probabilities of the prompt.
  RowRange scored_rows(const Chunk& chunk, size_t index) const {
    return {.first = query_starts_[index] + chunk.scored_begin - 1 - chunk.begin,
            .count = chunk.num_scored};
  }

 private:
  void AppendRounded(const Chunk& chunk);
  void AppendSampleRows(const Chunk& chunk);
  void Constrain(const EngineRequest& request, std::span<const int32_t> output, SampleRow& row);

  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int64_t> slots_;
  std::vector<RoundedRows> rounded_;
  std::vector<int32_t> query_starts_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> block_ids_;     // of all sequences, one table behind the other
  std::vector<int32_t> table_starts_;  // [sequences + 1], start of each table in block_ids_
  std::vector<int32_t> logit_rows_;
  std::vector<RowRange> scored_;
  std::vector<SampleRow> sample_rows_;
  // Tokens that rows of this step exclude; the first num_excluded_ lists are in use.
  std::vector<std::vector<int32_t>> excluded_;
  size_t num_excluded_ = 0;
};

}  // namespace tandem
