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
  DType dtype = DType::kI8;  // the type of the codes: i8 or f8e4m3
  // The scales of the weight NAME are the tensor whose name is NAME with this suffix.
  std::string scale_suffix = "_scale";
  // How many outputs and inputs of a weight share a scale. 0: the shape of the scales tells.
  int32_t block_outputs = 0;
  int32_t block_inputs = 0;
  // Whether layers also have scales for their inputs, as NAME.input_scale. They are not used: this
  // build does not round activations as the checkpoint asks.
  bool has_input_scales = false;
};

// Reads `quantization_config` of a config.json, in the form of compressed-tensors or of
// quant_method "fp8"; nothing where there is no such field. Which tensors are quantised follows
// from their own types. UNIMPLEMENTED names the method, format or option that this build does not
// read, with what it does read.
absl::StatusOr<std::optional<QuantizedWeights>> ReadQuantization(const FieldReader& config);

}  // namespace tandem
