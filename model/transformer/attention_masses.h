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

// Computes what the MassRequests of a batch ask for: how much attention each token of a context
// gets. Keeps the log-sum-exp (lse) that a prefill writes for each row, and copies each request's
// sums to the host layer by layer. Thread: engine.
class AttentionMasses {
 public:
  // Allocates the buffers. RESOURCE_EXHAUSTED when the device has no memory for them.
  static absl::StatusOr<AttentionMasses> Create(const ModelConfig& config,
                                                const TransformerLimits& limits, Device& device);
  // The most bytes that Begin adds to the staging of a step.
  static size_t StagingBytes(const TransformerLimits& limits);

  // Begins a step. `batch.masses` must stay valid until the step has been queued.
  void Begin(const ForwardBatch& batch, StepStaging& staging);
  bool wanted() const { return !requests_.empty(); }
  // Where the prefill of `num_rows` rows is to write its lse; absent when the step has no requests.
  TensorView Lse(int64_t num_rows) const;
  // Queues the sums of one layer. `chunks` are the arguments of the AttentionPrefill for all chunks
  // of the step, which has been queued before.
  absl::Status Queue(Stream& stream, Ops& ops, const AttentionArgs& chunks) const;

 private:
  AttentionMasses(DeviceBuffer memory, int64_t num_heads, int64_t lse_floats)
      : memory_(std::move(memory)), num_heads_(num_heads), lse_floats_(lse_floats) {}

  DeviceBuffer memory_;  // lse [max_tokens, Hq], then the sums of one request [Hkv, max_context]
  int64_t num_heads_;
  int64_t lse_floats_;
  std::span<const MassRequest> requests_;
  std::vector<int32_t> starts_;        // {0, rows} for each request
  StagedSpan<int32_t> staged_starts_;  // starts_ on the device
};

}  // namespace tandem
