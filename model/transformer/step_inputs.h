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
  StagedSpan<BlockPair> copies;
  AttentionInputs chunks;
  AttentionInputs decodes;
};

// Gathers the arrays of a batch, and what else the step needs on the device, for one copy. What it
// returns is valid until the next call, as long as the batch's own arrays are.
// Thread: engine. `device` must outlive it.
class InputStage {
 public:
  // For batches within `limits`, and `plan_bytes` that are added to staging().
  static absl::StatusOr<std::unique_ptr<InputStage>> Create(const Transformer::Limits& limits,
                                                            size_t plan_bytes, Device& device);

  // Begin the next step with the arrays of its batch; kernels find them once staging() has been
  // uploaded. Errors as StepStaging::Begin.
  absl::StatusOr<StepInputs> Add(const ForwardBatch& batch);
  // Of a batch of decodes alone: filled up to `num_rows` rows that store nothing and see nothing.
  // For equal num_rows all arrays lie at the same addresses in every step.
  absl::StatusOr<StepInputs> AddDecodes(const ForwardBatch& batch, int64_t num_rows);
  // Takes what else the step needs.
  StepStaging& staging() { return *staging_; }

 private:
  explicit InputStage(std::unique_ptr<StepStaging> staging) : staging_(std::move(staging)) {}

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
