#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/weights_as.h"

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

// The source of weights for forward passes. A pass requests each group right before it computes
// with it, in the order embedding, layers, head, so that a store whose weights are still loading,
// or are larger than memory, can read ahead and release behind. A request waits until its group is
// loaded; its error is the error of the step. The result stays valid until the next request.
// Thread: engine.
class WeightStore {
 public:
  virtual ~WeightStore() = default;
  virtual absl::StatusOr<PackedMatrix> Embedding() = 0;  // [V, H]
  virtual absl::StatusOr<LayerWeights> Layer(int32_t layer) = 0;
  virtual absl::StatusOr<HeadWeights> Head() = 0;
  // Whether a returned group never moves, so that operations on it may be recorded.
  virtual bool addresses_are_fixed() const = 0;
  // Whether some matrix is quantised, as codes with scales (kernels/weight_format.h).
  virtual bool has_codes() const = 0;
  // Whether no request waits any more. An error is the error of every later request.
  virtual absl::StatusOr<bool> loaded() const = 0;
  // Bytes that the store keeps resident.
  virtual int64_t resident_bytes() const = 0;
};

// Called on the loading thread while weights load. Both values are equal in the last call, when all
// is loaded, and never before.
using LoadProgress = std::function<void(uint64_t loaded_bytes, uint64_t total_bytes)>;

// Called once on the loading thread, right before the last group can be requested, with a hash of
// all bytes that were read. It is the same for the same tensors, in whatever files they are.
using WeightsHashed = std::function<void(uint64_t hash)>;

// Packs all weights of the checkpoint into memory of `device`, which is allocated at once and
// filled in the background, group by group in the order of a forward pass; packed groups can be
// used while others are still being packed. Before it returns, every tensor's name, dtype and shape
// is checked against the config: NOT_FOUND and INVALID_ARGUMENT name the tensor with its actual and
// expected properties. A later failure is logged and is the result of every request from then on.
// UNIMPLEMENTED for e4m3 codes that `weights_as` asks for in int8.
// `packing` is used for packing only; forward passes use another instance of the same backend. It
// and the checkpoint are released when all is packed. The store's destructor waits at most for the
// group being packed. `device` must outlive the store.
absl::StatusOr<std::unique_ptr<WeightStore>> LoadResidentWeights(
    const ModelConfig& config, std::unique_ptr<Checkpoint> checkpoint, Device& device,
    Backend packing, WeightsAs weights_as, LoadProgress progress, WeightsHashed hashed = nullptr);

}  // namespace tandem
