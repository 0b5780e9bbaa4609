#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/tensor.h"
#include "model/checkpoint/model_config.h"

namespace tandem {

// Cosines and sines of the rotary embedding for every possible position, computed once.
class RopeTable {
 public:
  // Computes the positions [0, num_positions).
  static absl::StatusOr<RopeTable> Create(const ModelConfig& config, int32_t num_positions,
                                          Device& device);

  TensorView cos() const { return Half(0); }  // [P, D/2] f32
  TensorView sin() const { return Half(1); }

 private:
  RopeTable(DeviceBuffer memory, int64_t num_positions, int64_t half)
      : memory_(std::move(memory)), num_positions_(num_positions), half_(half) {}

  TensorView Half(int64_t which) const {
    const int64_t offset = which * num_positions_ * half_ * SizeOf(DType::kF32);
    return TensorView(memory_.data() + offset, DType::kF32, {num_positions_, half_});
  }

  DeviceBuffer memory_;
  int64_t num_positions_ = 0;
  int64_t half_ = 0;  // D/2
};

}  // namespace tandem
