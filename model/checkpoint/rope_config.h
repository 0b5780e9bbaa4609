#pragma once

#include "absl/status/status.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {

// Reads rope_theta and the parameters of the rotary embedding of a config.json into config.rope.
// Needs config.max_position_embeddings. INVALID_ARGUMENT names the field; UNIMPLEMENTED names what
// this build does not compute, such as a scaling that is not default, linear or llama3.
absl::Status ReadRope(const FieldReader& fields, ModelConfig& config);

}  // namespace tandem
