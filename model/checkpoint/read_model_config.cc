#include <algorithm>
#include <utility>

#include "base/status.h"
#include "model/checkpoint/config_ranges.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_family.h"
#include "model/checkpoint/quantization_config.h"
#include "model/checkpoint/rope_config.h"
#include "model/checkpoint/sliding_window.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// Bounds far above any published model, so that no product of them overflows an int64 and nothing
// absurd is allocated.
constexpr Range<int32_t> kHidden{1, 1 << 17};
constexpr Range<int32_t> kIntermediate{1, 1 << 20};
constexpr Range<int32_t> kHeads{1, 1 << 12};
constexpr Range<int32_t> kHeadDim{2, 1 << 10};
constexpr Range<int32_t> kVocabulary{1, 1 << 22};
constexpr Range<double> kNormEps{1e-12, 0.1};
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

// Refuses options that change the computation in a way that this build does not support.
absl::Status RefuseUnsupported(const FieldReader& fields) {
  ASSIGN_OR_RETURN(const std::string activation, fields.StringOr("hidden_act", "silu"));
  if (activation != "silu" && activation != "swish") {
    return Unimplemented("hidden_act is {}: this build computes silu", Quoted(activation));
  }
  ASSIGN_OR_RETURN(const bool mlp_bias, fields.BoolOr("mlp_bias", false));
  if (mlp_bias) return Unimplemented("mlp_bias is true: this build computes MLPs without bias");
  ASSIGN_OR_RETURN(const int32_t pretraining_tp, fields.IntOr("pretraining_tp", {1, 1024}, 1));
  if (pretraining_tp != 1) {
    return Unimplemented("pretraining_tp is {}: this build computes 1 only", pretraining_tp);
  }
  return absl::OkStatus();
}

absl::Status ReadHeads(const FieldReader& fields, const ModelFamily& family, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.num_heads, fields.Int("num_attention_heads", kHeads));
  const int32_t default_kv_heads = family.default_num_kv_heads.value_or(config.num_heads);
  ASSIGN_OR_RETURN(config.num_kv_heads,
                   fields.IntOr("num_key_value_heads", kHeads, default_kv_heads));
  if (config.num_heads % config.num_kv_heads != 0) {
    return InvalidArgument("num_attention_heads is {}: not a multiple of num_key_value_heads {}",
                           config.num_heads, config.num_kv_heads);
  }
  if (fields.Has("head_dim") || family.default_head_dim.has_value()) {
    ASSIGN_OR_RETURN(config.head_dim,
                     fields.IntOr("head_dim", kHeadDim, family.default_head_dim.value_or(0)));
  } else if (config.hidden_size % config.num_heads != 0) {
    return InvalidArgument(
        "hidden_size is {}: not a multiple of num_attention_heads {}, and "
        "head_dim is missing",
        config.hidden_size, config.num_heads);
  } else {
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kHeadDim.max) {
    return InvalidArgument("head_dim is {}: it must be even and at most {}", config.head_dim,
                           kHeadDim.max);
  }
  return absl::OkStatus();
}

absl::Status ReadSizes(const FieldReader& fields, const ModelFamily& family, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.hidden_size, fields.Int("hidden_size", kHidden));
  ASSIGN_OR_RETURN(config.num_layers, fields.Int("num_hidden_layers", kLayers));
  ASSIGN_OR_RETURN(config.intermediate_size, fields.Int("intermediate_size", kIntermediate));
  ASSIGN_OR_RETURN(config.vocab_size, fields.Int("vocab_size", kVocabulary));
  ASSIGN_OR_RETURN(config.max_position_embeddings,
                   fields.Int("max_position_embeddings", kPositions));
  ASSIGN_OR_RETURN(config.rms_norm_eps, fields.FloatOr("rms_norm_eps", kNormEps, 1e-6f));
  return ReadHeads(fields, family, config);
}

absl::Status ReadBiases(const FieldReader& fields, const ModelFamily& family, ModelConfig& config) {
  config.qk_norm = family.qk_norm;
  config.qkv_bias = family.always_qkv_bias;
  ASSIGN_OR_RETURN(const bool attention_bias, fields.BoolOr("attention_bias", false));
  if (family.reads_attention_bias) {
    config.qkv_bias = attention_bias;
    config.output_bias = attention_bias;
  } else if (attention_bias && !family.always_qkv_bias) {
    return Unimplemented("attention_bias is true: {} is computed without", family.model_type);
  }
  return absl::OkStatus();
}

absl::Status AddEosId(const Json& value, ModelConfig& config) {
  const auto* id = value.get_ptr<const uint64_t*>();
  if (id == nullptr || *id >= static_cast<uint64_t>(config.vocab_size)) {
    return InvalidArgument(
        "eos_token_id has {}: it must be an integer from 0 to vocab_size - 1, "
        "{}",
        Shown(value), config.vocab_size - 1);
  }
  const auto token = static_cast<int32_t>(*id);
  std::vector<int32_t>& ids = config.eos_token_ids;
  if (std::find(ids.begin(), ids.end(), token) == ids.end()) ids.push_back(token);
  return absl::OkStatus();
}

absl::Status AddEosIds(const FieldReader& fields, ModelConfig& config) {
  const Json* value = fields.Find("eos_token_id");
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array()) return AddEosId(*value, config);
  constexpr size_t kMaxIds = 64;
  if (value->size() > kMaxIds) {
    return InvalidArgument("eos_token_id has {} ids: at most {}", value->size(), kMaxIds);
  }
  for (const Json& id : *value) RETURN_IF_ERROR(AddEosId(id, config));
  return absl::OkStatus();
}

absl::Status ReadDType(const FieldReader& fields, ModelConfig& config) {
  config.names_dtype = fields.Has("torch_dtype") || fields.Has("dtype");
  const std::string_view field = fields.Has("torch_dtype") ? "torch_dtype" : "dtype";
  const absl::StatusOr<std::string> name = fields.StringOr(field, "bfloat16");
  RETURN_IF_ERROR(name.status());
  if (*name == "bfloat16") {
    config.dtype = DType::kBF16;
  } else if (*name == "float16") {
    config.dtype = DType::kF16;
  } else if (*name == "float32") {
    config.dtype = DType::kF32;
  } else {
    return Unimplemented("{} is {}: this build reads bfloat16, float16 and float32", field,
                         Quoted(*name));
  }
  return absl::OkStatus();
}

// Parses config.json. Families that are not computed here (Mamba and its hybrids) write Infinity
// into it, which is no JSON: then the status names the family, which says more than the number
// does.
absl::StatusOr<Json> ParseConfigJson(std::string_view json) {
  absl::StatusOr<Json> object = ParseStrictJson(json);
  if (object.ok()) return object;
  const absl::StatusOr<Json> lenient = ParseStrictJson(WithoutNonFiniteWords(json));
  if (!lenient.ok() || !lenient->is_object()) return object;
  const auto family = FindFamily(FieldReader(*lenient, ""));
  return absl::IsUnimplemented(family.status()) ? family.status() : object.status();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json) {
  ASSIGN_OR_RETURN(const Json object, ParseConfigJson(json));
  if (!object.is_object()) return InvalidArgument("{}, not an object", Shown(object));
  const FieldReader fields(object, "");
  ASSIGN_OR_RETURN(const ModelFamily* family, FindFamily(fields));
  ModelConfig config;
  config.model_type = std::string(family->model_type);
  RETURN_IF_ERROR(RefuseUnsupported(fields));
  ASSIGN_OR_RETURN(config.quantized_weights, ReadQuantization(fields));
  RETURN_IF_ERROR(ReadSizes(fields, *family, config));
  RETURN_IF_ERROR(ReadBiases(fields, *family, config));
  RETURN_IF_ERROR(ReadRope(fields, config));
  RETURN_IF_ERROR(ReadWindow(fields, config));
  RETURN_IF_ERROR(ReadDType(fields, config));
  RETURN_IF_ERROR(AddEosIds(fields, config));
  ASSIGN_OR_RETURN(config.tie_word_embeddings, fields.BoolOr("tie_word_embeddings", false));
  ASSIGN_OR_RETURN(config.bos_token_id,
                   fields.IntOr("bos_token_id", {0, config.vocab_size - 1}, -1));
  return config;
}

absl::Status ApplyGenerationConfig(std::string_view json, ModelConfig& config) {
  ASSIGN_OR_RETURN(const Json object, ParseStrictJson(json));
  if (!object.is_object()) return InvalidArgument("{}, not an object", Shown(object));
  const FieldReader fields(object, "");
  if (fields.Has("eos_token_id")) config.eos_token_ids.clear();
  return AddEosIds(fields, config);
}

void AdoptDType(const Checkpoint& checkpoint, ModelConfig& config) {
  if (!config.names_dtype) config.dtype = checkpoint.PrevalentDType();
}

absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory) {
  const std::string path = directory + "/config.json";
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxConfigBytes));
  auto config = ParseModelConfig(text);
  if (!config.ok()) return Annotate(config.status(), path);

  const std::string generation_path = directory + "/generation_config.json";
  if (!FileExists(generation_path)) return config;
  ASSIGN_OR_RETURN(const std::string generation_text,
                   ReadSmallFile(generation_path, kMaxConfigBytes));
  const absl::Status applied = ApplyGenerationConfig(generation_text, *config);
  if (!applied.ok()) return Annotate(applied, generation_path);
  return config;
}

}  // namespace tandem
