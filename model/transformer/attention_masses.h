#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/step_staging.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/forward_batch.h"

namespace tandem {

// Answers the MassRequests of a batch: what the rows of a prefill leave behind (lse), and each
// request's sums, layer by layer on their way to the host. Thread: engine.
class AttentionMasses {
 public:
  // RESOURCE_EXHAUSTED as the device says.
  static absl::StatusOr<AttentionMasses> Create(const ModelConfig& config,
                                                const TransformerLimits& limits, Device& device);
  // What Begin adds to the staging of a step at most.
  static size_t StagingBytes(const TransformerLimits& limits);

  // Begins a step. Its requests are valid until the next one.
  void Begin(const ForwardBatch& batch, StepStaging& staging);
  bool wanted() const { return !requests_.empty(); }
  // Where the prefill of `num_rows` rows is to leave its lse; absent when nothing is wanted.
  TensorView Lse(int64_t num_rows) const;
  // Queues the sums of one layer. `chunks`: as it was given to AttentionPrefill for all chunks of the
  // step, which has been queued before.
  absl::Status Queue(Stream& stream, Ops& ops, const AttentionArgs& chunks) const;

 private:
  AttentionMasses(DeviceBuffer memory, int64_t num_heads, int64_t lse_floats)
      : memory_(std::move(memory)), num_heads_(num_heads), lse_floats_(lse_floats) {}

  DeviceBuffer memory_;  // lse [max_tokens, Hq], then the sums of one request [Hkv, max_context]
  int64_t num_heads_;
  int64_t lse_floats_;
  std::span<const MassRequest> requests_;
  std::vector<int32_t> starts_;        // {0, rows} for each request
  StagedSpan<int32_t> staged_starts_;  // the same
};

}  // namespace tandem
