#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/op_args.h"
#include "kernels/step_staging.h"
#include "model/transformer/forward.h"

namespace tandem {

// The sequences of a step that one attention call takes, and their rows.
struct AttentionInputs {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  StagedSpan<int32_t> query_starts;  // from 0
  StagedSpan<int32_t> context_lens;
  BlockTables block_tables;
};

// A ForwardBatch as ops take it.
struct StepInputs {
  int64_t num_rows = 0;
  StagedSpan<int32_t> token_ids;
  StagedSpan<int32_t> positions;
  StagedSpan<int64_t> slots;
  AttentionInputs chunks;
  AttentionInputs decodes;
};

// Brings the arrays of a batch to the device in one copy. What it returns is valid until the next
// call, as long as the batch's own arrays are.
// Thread: engine. `device` must outlive it.
class InputStage {
 public:
  // For batches within `limits`.
  static absl::StatusOr<std::unique_ptr<InputStage>> Create(const Transformer::Limits& limits,
                                                            Device& device);

  absl::StatusOr<StepInputs> Stage(Stream& stream, const ForwardBatch& batch);
  // Of a batch of decodes alone: filled up to `num_rows` rows that store nothing and see nothing.
  // For equal num_rows all arrays lie at the same addresses in every step.
  absl::StatusOr<StepInputs> StageDecodes(Stream& stream, const ForwardBatch& batch,
                                          int64_t num_rows);

 private:
  explicit InputStage(std::unique_ptr<StepStaging> staging) : staging_(std::move(staging)) {}
  absl::StatusOr<StepInputs> StageArrays(Stream& stream, const ForwardBatch& batch);

  std::unique_ptr<StepStaging> staging_;
  std::vector<int32_t> decode_starts_;  // 0, 1, 2, ...: one query row each
  // The arrays of a batch that was filled up.
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int64_t> slots_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> table_starts_;
};

}  // namespace tandem
