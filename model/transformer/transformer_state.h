#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/transformer/activations.h"
#include "model/transformer/attention_masses.h"
#include "model/transformer/decode_graphs.h"
#include "model/transformer/forward.h"
#include "model/transformer/rope_table.h"
#include "model/transformer/step_inputs.h"

namespace tandem {

// The attention plans of a step's chunks and decodes, which are the same in every layer.
struct AttentionPlans {
  AttentionPlan chunks;
  AttentionPlan decodes;
};

// The rows of a step that are still computed after the attention of the last layer, in rising
// order.
struct StepRows {
  std::span<const int32_t> kept;  // rows whose final residual is computed
  std::span<const int32_t> head;  // those of `kept` whose logits are computed in the same pass
};

// What a Transformer owns, and the parts of a forward pass. check_batch.cc checks a batch,
// compute.cc runs the pass, recorded_passes.cc runs decodes as graphs, transformer.cc has the rest.
struct Transformer::State {
  ModelConfig config;
  Limits limits;
  WeightStore& weights;
  Ops& ops;
  RopeTable rope;
  std::unique_ptr<InputStage> stage;
  DecodeGraphs graphs;
  bool can_record;
  KvRounder rounder;
  DeviceBuffer memory;
  Activations activations;         // views of `memory` with the most rows
  std::vector<int32_t> head_rows;  // the distinct logit rows of this step
  std::vector<int32_t> kept_rows;  // head_rows and the scored rows, in rising order
  SamplePlan sample_plan;          // the sampling plan of this step
  AttentionMasses masses;          // how much attention tokens get in this step

  absl::Status CheckBatch(const ForwardBatch& batch) const;
  AttentionArgs AttentionOf(const Activations& a, const KvPoolView& pool, int32_t layer) const;
  absl::StatusOr<AttentionPlan> PlanChunks(const StepInputs& inputs, const KvPoolView& pool);
  absl::Status Qkv(Stream& stream, const LayerWeights& w, const StepInputs& inputs,
                   const AttentionArgs& attention, const Activations& a);
  absl::Status Attention(Stream& stream, const StepInputs& inputs, const AttentionArgs& args,
                         const AttentionPlans& plans);
  absl::Status KeepRows(Stream& stream, std::span<const int32_t> rows, const Activations& a);
  absl::Status RepeatLogits(Stream& stream, std::span<const int32_t> rows,
                            const TensorView& logits);
  absl::Status OutputAndMlp(Stream& stream, const LayerWeights& w, const Activations& a);
  absl::Status Head(Stream& stream, const StepRows& rows, const Activations& a);
  absl::Status Compute(Stream& stream, const StepInputs& inputs, const StepRows& rows,
                       const AttentionPlan& chunks, const KvPoolView& pool,
                       const LayerStored& layer_stored);
  void KeepScored(std::span<const RowRange> scored);
  bool CanRecord(const ForwardBatch& batch, const LayerStored& layer_stored) const;
  absl::Status ComputeRecorded(Stream& stream, const StepInputs& inputs, const KvPoolView& pool);
  absl::Status PrepareProducts(int32_t rows);
  absl::Status RecordDecodes(Stream& stream, const KvPoolView& pool, int32_t rows);
  bool can_warm_up() const { return can_record && weights.addresses_are_fixed(); }
  absl::StatusOr<TensorView> Forward(Stream& stream, const ForwardBatch& batch,
                                     const KvPoolView& pool, const LayerStored& layer_stored);
  absl::StatusOr<TensorView> Logits(Stream& stream, RowRange rows);
};

}  // namespace tandem
