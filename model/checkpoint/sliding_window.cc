#include "model/checkpoint/sliding_window.h"

#include <cstdint>

#include "base/status.h"
#include "model/checkpoint/config_ranges.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

enum class LayerKinds : uint8_t { kUnsaid, kAllFull, kAllSliding };

absl::StatusOr<LayerKinds> ReadLayerTypes(const FieldReader& fields, const ModelConfig& config) {
  const Json* types = fields.Find("layer_types");
  if (types == nullptr) return LayerKinds::kUnsaid;
  if (!types->is_array() || types->size() != static_cast<size_t>(config.num_layers)) {
    return InvalidArgument("layer_types must be an array of num_hidden_layers = {} names",
                           config.num_layers);
  }
  for (const Json& type : *types) {
    if (type != "full_attention" && type != "sliding_attention") {
      return Unimplemented(
          "layer_types has {}: this build computes full_attention and "
          "sliding_attention",
          Shown(type));
    }
    if (type != types->front()) {
      return Unimplemented(
          "layer_types mixes full_attention and sliding_attention: this build "
          "computes models whose layers are all of one kind");
    }
  }
  return types->front() == "full_attention" ? LayerKinds::kAllFull : LayerKinds::kAllSliding;
}

// Reads sliding_window. An absent field means 4096, as in the first Mistral and in transformers;
// null means no window.
absl::StatusOr<int32_t> WindowOrDefault(const FieldReader& fields) {
  const bool is_null = fields.HasKey("sliding_window") && !fields.Has("sliding_window");
  return fields.IntOr("sliding_window", kPositions, is_null ? 0 : 4096);
}

// The window of the Qwen families, which applies to layers from max_window_layers on.
absl::StatusOr<int32_t> QwenWindow(const FieldReader& fields, const ModelConfig& config,
                                   LayerKinds kinds) {
  ASSIGN_OR_RETURN(const bool use_window, fields.BoolOr("use_sliding_window", false));
  ASSIGN_OR_RETURN(const int32_t window, WindowOrDefault(fields));
  if (!use_window || window == 0 || kinds == LayerKinds::kAllFull) return 0;
  if (kinds == LayerKinds::kAllSliding) return window;
  ASSIGN_OR_RETURN(const int32_t first, fields.IntOr("max_window_layers", {0, kLayers.max}, 28));
  if (first >= config.num_layers) return 0;
  if (first == 0) return window;
  return Unimplemented(
      "use_sliding_window is true with max_window_layers {} of {} layers: this "
      "build computes models whose layers are all of one kind",
      first, config.num_layers);
}

}  // namespace

absl::Status ReadWindow(const FieldReader& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(const LayerKinds kinds, ReadLayerTypes(fields, config));
  if (config.model_type == "mistral") {
    ASSIGN_OR_RETURN(config.sliding_window, WindowOrDefault(fields));
  } else if (config.model_type != "llama") {
    ASSIGN_OR_RETURN(config.sliding_window, QwenWindow(fields, config, kinds));
  } else if (fields.Has("sliding_window")) {
    return Unimplemented("sliding_window is {}: llama is computed without",
                         Shown(*fields.Find("sliding_window")));
  }
  if (kinds != LayerKinds::kUnsaid &&
      (kinds == LayerKinds::kAllSliding) != (config.sliding_window > 0)) {
    return InvalidArgument(
        "layer_types says {}, but the sliding window of this {} is {}",
        kinds == LayerKinds::kAllSliding ? "sliding_attention" : "full_attention",
        config.model_type, config.sliding_window);
  }
  return absl::OkStatus();
}

}  // namespace tandem
