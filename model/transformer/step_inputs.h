#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/op_args.h"
#include "kernels/step_staging.h"
#include "model/transformer/forward_batch.h"

namespace tandem {

// The sequences of one attention call and their rows.
struct AttentionInputs {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  StagedSpan<int32_t> query_starts;  // first row of each sequence; the first is 0
  StagedSpan<int32_t> context_lens;
  BlockTables block_tables;
};

// A ForwardBatch in the form that Ops takes.
struct StepInputs {
  int64_t num_rows = 0;
  StagedSpan<int32_t> token_ids;
  StagedSpan<int32_t> positions;
  StagedSpan<int64_t> slots;
  StagedSpan<BlockPair> copies;
  std::span<const RoundedRows> rounded;
  AttentionInputs chunks;
  AttentionInputs decodes;
};

// Gathers the arrays of a batch, and other data that the step needs on the device, for one upload.
// The result is valid until the next call, and as long as the arrays of the batch are. Thread:
// engine. `device` must outlive it.
class InputStage {
 public:
  // Sizes the staging for batches within `limits`, plus `plan_bytes` of other data.
  static absl::StatusOr<std::unique_ptr<InputStage>> Create(const TransformerLimits& limits,
                                                            size_t plan_bytes, Device& device);

  // Begins the next step with the arrays of its batch, which are on the device once staging() has
  // been uploaded. Errors as StepStaging::Begin.
  absl::StatusOr<StepInputs> Add(const ForwardBatch& batch);
  // As Add, for a batch of only decodes, which is padded to `num_rows` rows; the rows that are
  // added neither store nor attend to anything. For equal num_rows all arrays have the same
  // addresses in every step.
  absl::StatusOr<StepInputs> AddDecodes(const ForwardBatch& batch, int64_t num_rows);
  // The staging of the step, to which other data is added before the upload.
  StepStaging& staging() { return *staging_; }

 private:
  explicit InputStage(std::unique_ptr<StepStaging> staging) : staging_(std::move(staging)) {}

  std::unique_ptr<StepStaging> staging_;
  std::vector<int32_t> decode_starts_;  // 0, 1, 2, ...: one query row each
  // Buffers for the arrays of a batch that AddDecodes pads.
  std::vector<int32_t> token_ids_;
  std::vector<int32_t> positions_;
  std::vector<int64_t> slots_;
  std::vector<int32_t> context_lens_;
  std::vector<int32_t> table_starts_;
};

}  // namespace tandem
