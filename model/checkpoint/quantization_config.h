#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {

// How a checkpoint keeps the weights of its linear layers: codes of 8 bits with scales.
struct QuantizedWeights {
  DType dtype = DType::kI8;  // of the codes: i8 or f8e4m3
  // The scales of the weight NAME are the tensor NAME with this behind it.
  std::string scale_suffix = "_scale";
  // So many outputs and inputs share a scale. 0: how many do, the shape of the scales says.
  int32_t block_outputs = 0;
  int32_t block_inputs = 0;
  // Layers have scales for their inputs, too, as NAME.input_scale. How activations would be rounded as the
  // model runs is not followed.
  bool has_input_scales = false;
};

// What `quantization_config` of a config.json says, as compressed-tensors writes it, or as fp8 checkpoints do
// that carry their format's own name; nothing where there is no such field. Which tensors are quantised,
// their own types say. UNIMPLEMENTED names the method, format or option that this build does not read, with
// what it does read.
absl::StatusOr<std::optional<QuantizedWeights>> ReadQuantization(const FieldReader& config);

}  // namespace tandem
