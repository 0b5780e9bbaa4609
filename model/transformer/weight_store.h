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

// The weights after the last layer. With tied embeddings lm_head is the embedding's memory.
struct HeadWeights {
  TensorView final_norm;  // [H] f32
  PackedMatrix lm_head;   // [V, H]
};

// Where a forward pass gets its weights: it asks for each group right before it computes with it,
// embedding, layers in order, head, so that a store whose weights are still being read, or are
// larger than memory, can read ahead and let go behind. An ask waits until its group is there; its
// error is the step's. What is returned stays valid until the next ask.
// Thread: engine.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  virtual absl::StatusOr<PackedMatrix> Embedding() = 0;  // [V, H]
  virtual absl::StatusOr<LayerWeights> Layer(int32_t layer) = 0;
  virtual absl::StatusOr<HeadWeights> Head() = 0;
  // Whether a group, once returned, stays where it is for good: then work on it may be recorded.
  virtual bool addresses_are_fixed() const = 0;
  // Whether no ask waits any more. Its error is that of every ask from now on.
  virtual absl::StatusOr<bool> loaded() const = 0;
  // Bytes that the store keeps resident.
  virtual int64_t resident_bytes() const = 0;
};

// Called while weights load, from the loading thread. Once all is loaded, and never before, both
// are equal: that is the last call.
using LoadProgress = std::function<void(uint64_t loaded_bytes, uint64_t total_bytes)>;

// All weights of the checkpoint, packed into memory of `device` that is set aside at once and
// filled in the background, group by group in the order of a forward pass: the store serves what is
// packed while the rest is under way. Before it returns, every tensor's name, dtype and shape is
// checked against the config: NOT_FOUND and INVALID_ARGUMENT name the tensor, what it is and what
// it must be. What fails later is logged and answers every ask from then on.
// `ops` packs and does nothing else: forward passes run on another instance of the same backend
// meanwhile. It and the checkpoint are let go when all is packed. The store's destructor waits for
// no more than the group being packed. `device` must outlive it.
absl::StatusOr<std::unique_ptr<WeightStore>> LoadResidentWeights(
    const ModelConfig& config, std::unique_ptr<Checkpoint> checkpoint, Device& device,
    std::unique_ptr<Ops> ops, LoadProgress progress);

}  // namespace tandem
