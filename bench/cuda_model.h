#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/cuda_bench.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/forward.h"

namespace tandem {

// Qwen3-8B: what its config.json says, with `num_layers` of its 36.
ModelConfig Qwen3Shape(int32_t num_layers);

// A model of random weights made on the device, scaled so that activations stay finite, over a pool
// of random K and V: what counts is the work, not the words.
class CudaModel {
 public:
  struct Options {
    ModelConfig config;
    int32_t max_tokens = 0;  // of one step
    int32_t max_sequences = 0;
    int32_t max_context_tokens = 0;  // of one sequence
    int64_t max_total_tokens = 0;    // of all sequences of a step
  };

  // `ops` is of the bench's device; all must outlive it.
  static absl::StatusOr<std::unique_ptr<CudaModel>> Create(CudaBench& bench, Ops& ops,
                                                           const Options& options);

  // Queues the forward pass of a prompt of `tokens` from an empty context, logits of its last row.
  absl::Status QueuePrefill(int32_t tokens);
  // Queues one pass of `batch` sequences of one row at `position`.
  absl::StatusOr<TensorView> QueueDecode(int32_t batch, int32_t position);
  // Greedily, from these logits of the latest pass; the tokens are what the next pass computes on.
  absl::Status Sample(const TensorView& logits);

  // Computes with another Ops of the same device from here on; its first pass of each size runs op
  // by op, unrecorded.
  absl::Status ComputeWith(Ops& ops);
  int64_t weight_bytes() const { return weights_->resident_bytes(); }

 private:
  CudaModel(CudaBench& bench, const Options& options)
      : bench_(bench), memory_(bench.device()), options_(options) {}
  absl::Status MakePool();
  void Append(int32_t sequence, int32_t begin, int32_t end);
  absl::StatusOr<TensorView> Forward(int32_t num_decodes);

  CudaBench& bench_;
  CaseMemory memory_;
  Options options_;
  Ops* ops_ = nullptr;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<Transformer> transformer_;
  KvPoolView pool_;
  int32_t blocks_per_sequence_ = 0;
  std::vector<int32_t> blocks_;  // [sequences, blocks_per_sequence_]
  std::vector<int32_t> next_ids_;

  // The arrays of the step in progress, which computes positions [begin, end) of some sequences.
  std::vector<int32_t> ids_, positions_, query_starts_, context_lens_, tables_, table_starts_;
  std::vector<int64_t> slots_;
  std::vector<int32_t> logit_rows_;
  std::vector<SampleRow> sample_rows_;
  std::vector<SampledToken> sampled_;
};

}  // namespace tandem
