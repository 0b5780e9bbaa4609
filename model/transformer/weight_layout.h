#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/ops.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/weights_as.h"

namespace tandem {

// The scales of one tensor of codes, [blocks of outputs, blocks of inputs].
struct PlacedScales {
  std::string name;
  CheckpointTensor tensor;
  int64_t block_outputs = 1;  // so many outputs of the weight share a scale
  int64_t block_inputs = 1;
};

// A matrix of the model, made of stacked tensors of the checkpoint, and its position in memory.
struct PlacedMatrix {
  std::string name;                       // the name of the first source
  std::vector<CheckpointTensor> sources;  // each [n_i, k]; empty when the matrix is absent
  std::vector<PlacedScales> scales;       // one per source where those are codes, else none
  WeightFormat format = DType::kBF16;     // the format in memory
  int64_t n = 0;                          // rows: the sum of n_i
  int64_t k = 0;
  int64_t offset = 0;  // bytes into the memory of all weights

  PackedMatrix In(std::byte* memory) const {
    return sources.empty() ? PackedMatrix() : PackedMatrix{memory + offset, format, n, k};
  }
};

// Norm weights or biases: stacked tensors of the checkpoint, stored as one vector of f32.
struct PlacedVector {
  std::vector<CheckpointTensor> sources;  // each [n_i]; empty when the vector is absent
  int64_t size = 0;                       // sum of n_i
  int64_t offset = 0;

  TensorView In(std::byte* memory) const {
    return sources.empty() ? TensorView() : TensorView(memory + offset, DType::kF32, {size});
  }
};

struct LayerLayout {
  PlacedVector attention_norm;
  PlacedMatrix qkv;
  PlacedVector qkv_bias;
  PlacedVector q_norm;
  PlacedVector k_norm;
  PlacedMatrix output;
  PlacedVector output_bias;
  PlacedVector mlp_norm;
  PlacedMatrix gate_up;
  PlacedMatrix down;
};

struct WeightLayout {
  PlacedMatrix embedding;
  std::vector<LayerLayout> layers;
  PlacedVector final_norm;
  PlacedMatrix lm_head;       // absent when tied to the embedding
  int64_t packed_bytes = 0;   // bytes in memory of all weights
  uint64_t source_bytes = 0;  // bytes in the checkpoint of all tensors placed
};

// Finds every tensor that the config requires, checks its dtype and shape, and assigns its
// position. Reads no weight. A tensor that the config does not require is refused, because the
// computation would silently leave it out. Errors as LoadResidentWeights.
absl::StatusOr<WeightLayout> PlanWeights(const ModelConfig& config, const Checkpoint& checkpoint,
                                         const Ops& ops, WeightsAs weights_as);

}  // namespace tandem
