#pragma once

#include "absl/status/status.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {

// Reads the window of attention of a config.json into config.sliding_window, and needs
// config.model_type and config.num_layers. INVALID_ARGUMENT where fields disagree; UNIMPLEMENTED
// for a model whose layers are not all of one kind, or a family that is computed without a window.
absl::Status ReadWindow(const FieldReader& fields, ModelConfig& config);

}  // namespace tandem
