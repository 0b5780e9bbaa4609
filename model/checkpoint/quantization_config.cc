#include "model/checkpoint/quantization_config.h"

#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr char kField[] = "quantization_config";
constexpr char kRead[] =
    "this build reads compressed-tensors of the formats int-quantized and float-quantized, with "
    "symmetric 8-bit weights, and fp8 in e4m3";

absl::Status Refused(const FieldReader& fields, std::string_view name) {
  const Json* value = fields.Find(name);
  return Unimplemented("{} is {}: {}", fields.Path(name),
                       value == nullptr ? "missing" : Shown(*value), kRead);
}

absl::Status MustBe(const FieldReader& fields, std::string_view name, const Json& wanted) {
  const Json* value = fields.Find(name);
  return value != nullptr && *value == wanted ? absl::OkStatus() : Refused(fields, name);
}

absl::Status MustBeAbsent(const FieldReader& fields, std::string_view name) {
  return fields.Has(name) ? Refused(fields, name) : absl::OkStatus();
}

// The field `name`, or an error where it is not an object.
absl::StatusOr<const Json*> Object(const FieldReader& fields, std::string_view name) {
  const Json* value = fields.Find(name);
  if (value == nullptr || !value->is_object()) return Refused(fields, name);
  return value;
}

// Reads how many outputs and inputs of a weight share a scale: [outputs, inputs].
absl::Status ReadBlock(const FieldReader& fields, std::string_view name,
                       QuantizedWeights& weights) {
  const Json* block = fields.Find(name);
  const auto is_side = [](const Json& side) {
    return side.is_number_unsigned() && side >= 1 && side <= 65536;
  };
  if (block == nullptr || !block->is_array() || block->size() != 2 || !is_side((*block)[0]) ||
      !is_side((*block)[1])) {
    return Refused(fields, name);
  }
  weights.block_outputs = (*block)[0];
  weights.block_inputs = (*block)[1];
  return absl::OkStatus();
}

// Reads how the weights of a group of layers are quantised.
absl::Status ReadWeights(const FieldReader& fields, QuantizedWeights& weights) {
  RETURN_IF_ERROR(MustBe(fields, "num_bits", 8));
  RETURN_IF_ERROR(MustBe(fields, "type", weights.dtype == DType::kI8 ? "int" : "float"));
  RETURN_IF_ERROR(MustBe(fields, "symmetric", true));
  RETURN_IF_ERROR(MustBeAbsent(fields, "actorder"));
  ASSIGN_OR_RETURN(const std::string strategy, fields.String("strategy"));
  if (strategy == "block") return ReadBlock(fields, "block_structure", weights);
  const bool is_read = strategy == "channel" || strategy == "tensor" || strategy == "group";
  return is_read ? absl::OkStatus() : Refused(fields, "strategy");
}

// Reads how activations are quantised. Scales of activations that are known beforehand are tensors
// of the checkpoint. For integers they are refused, because there would be zero points, too.
absl::Status ReadActivations(const FieldReader& group, QuantizedWeights& weights) {
  RETURN_IF_ERROR(MustBeAbsent(group, "output_activations"));
  if (!group.Has("input_activations")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json* activations, Object(group, "input_activations"));
  const FieldReader fields(*activations, group.Path("input_activations") + ".");
  if (weights.dtype == DType::kI8) return MustBe(fields, "dynamic", true);
  ASSIGN_OR_RETURN(const bool is_dynamic, fields.BoolOr("dynamic", false));
  weights.has_input_scales = !is_dynamic;
  return absl::OkStatus();
}

absl::Status ReadGroup(const FieldReader& group, QuantizedWeights& weights) {
  RETURN_IF_ERROR(MustBe(group, "targets", Json::array({"Linear"})));
  RETURN_IF_ERROR(ReadActivations(group, weights));
  ASSIGN_OR_RETURN(const Json* of_weights, Object(group, "weights"));
  return ReadWeights(FieldReader(*of_weights, group.Path("weights") + "."), weights);
}

absl::StatusOr<QuantizedWeights> ReadCompressedTensors(const FieldReader& fields) {
  ASSIGN_OR_RETURN(const std::string format, fields.String("format"));
  if (format != "int-quantized" && format != "float-quantized") return Refused(fields, "format");
  QuantizedWeights weights;
  weights.dtype = format == "int-quantized" ? DType::kI8 : DType::kF8E4M3;
  RETURN_IF_ERROR(MustBeAbsent(fields, "kv_cache_scheme"));
  if (const Json* sparsity = fields.Find("sparsity_config"); sparsity != nullptr) {
    if (!sparsity->empty()) return Refused(fields, "sparsity_config");
  }
  ASSIGN_OR_RETURN(const Json* groups, Object(fields, "config_groups"));
  if (groups->size() != 1 || !groups->front().is_object()) return Refused(fields, "config_groups");
  const std::string path = fields.Path("config_groups") + "." + groups->begin().key() + ".";
  RETURN_IF_ERROR(ReadGroup(FieldReader(groups->front(), path), weights));
  return weights;
}

// Reads the form in which Qwen and DeepSeek publish fp8 checkpoints: one scale per block, in a
// tensor that is named the inverse of the factor by which the weights were multiplied before
// rounding; or, without blocks, one scale per tensor.
absl::StatusOr<QuantizedWeights> ReadFp8(const FieldReader& fields) {
  QuantizedWeights weights;
  weights.dtype = DType::kF8E4M3;
  if (fields.Has("fmt")) RETURN_IF_ERROR(MustBe(fields, "fmt", "e4m3"));
  ASSIGN_OR_RETURN(const std::string scheme, fields.StringOr("activation_scheme", "dynamic"));
  if (scheme != "dynamic" && scheme != "static") return Refused(fields, "activation_scheme");
  weights.has_input_scales = scheme == "static";
  if (fields.Has("weight_block_size")) {
    weights.scale_suffix = "_scale_inv";
    RETURN_IF_ERROR(ReadBlock(fields, "weight_block_size", weights));
  }
  return weights;
}

}  // namespace

absl::StatusOr<std::optional<QuantizedWeights>> ReadQuantization(const FieldReader& config) {
  RETURN_IF_ERROR(MustBeAbsent(config, "compression_config"));
  if (!config.Has(kField)) return std::nullopt;
  ASSIGN_OR_RETURN(const Json* object, Object(config, kField));
  const FieldReader fields(*object, std::string(kField) + ".");
  ASSIGN_OR_RETURN(const std::string method, fields.String("quant_method"));
  if (method == "compressed-tensors") return ReadCompressedTensors(fields);
  if (method == "fp8") return ReadFp8(fields);
  return Refused(fields, "quant_method");
}

}  // namespace tandem
