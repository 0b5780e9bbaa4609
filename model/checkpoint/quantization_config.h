#pragma once

#include "absl/status/statusor.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {

// What `quantization_config` of a config.json says, read as compressed-tensors writes it: true where the
// linear layers have 8-bit integers with scales, false where there is no such field. Which tensors are
// quantised, and how many weights share a scale, their own shapes say (weight_layout.h). How activations
// would be rounded as a model runs is not followed: they stay floats, which loses less.
// UNIMPLEMENTED names the method, format or option that this build does not read, with what it does.
absl::StatusOr<bool> HasInt8Weights(const FieldReader& config);

}  // namespace tandem
