#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kernels/tensor.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/model_config.h"

namespace tandem {

// The weights of one decoder layer. Qkv: q, k and v stacked, [(Hq + 2 Hkv) * D, H].
// Gate_up: gate and up stacked, [2F, H].
struct LayerWeights {
  TensorView attention_norm;  // [H] f32
  PackedMatrix qkv;           // [(Hq + 2 Hkv) D, H]
  TensorView qkv_bias;        // [(Hq + 2 Hkv) D] f32, or absent
  TensorView q_norm;          // [D] f32, or absent
  TensorView k_norm;          // [D] f32, or absent
  PackedMatrix output;        // [H, Hq D]
  TensorView output_bias;     // [H] f32, or absent
  TensorView mlp_norm;        // [H] f32
  PackedMatrix gate_up;       // [2F, H]
  PackedMatrix down;          // [H, F]
};

// The weights around the layers. With tied embeddings both matrices are the same memory.
struct OuterWeights {
  PackedMatrix embedding;  // [V, H]
  TensorView final_norm;   // [H] f32
  PackedMatrix lm_head;    // [V, H]
};

// Where a forward pass gets its weights: it asks for each group right before it computes with it,
// so that a store whose weights are larger than memory can read ahead and let go behind.
// What Layer returns stays valid until the next call of Layer or Outer.
// Thread: engine.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  virtual absl::StatusOr<LayerWeights> Layer(int32_t layer) = 0;
  virtual absl::StatusOr<OuterWeights> Outer() = 0;
  // Bytes that the store keeps resident.
  virtual int64_t resident_bytes() const = 0;
};

// Called while weights load, from the loading thread.
using LoadProgress = std::function<void(uint64_t loaded_bytes, uint64_t total_bytes)>;

// Packs all weights of the checkpoint into memory of `device`. `ops` and `device` must outlive it.
// Every tensor's name, dtype and shape is checked against the config before anything is packed:
// NOT_FOUND and INVALID_ARGUMENT name the tensor, what it is and what it must be.
absl::StatusOr<std::unique_ptr<WeightStore>> LoadResidentWeights(const ModelConfig& config,
                                                                 const Checkpoint& checkpoint,
                                                                 Device& device, Ops& ops,
                                                                 const LoadProgress& progress);

}  // namespace tandem
