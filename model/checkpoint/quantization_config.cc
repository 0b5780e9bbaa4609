#include "model/checkpoint/quantization_config.h"

#include <string>
#include <string_view>

#include "base/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr char kField[] = "quantization_config";
constexpr char kRead[] =
    "this build reads compressed-tensors of the format int-quantized, with symmetric 8-bit weights";

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

// The object of that name, or an error.
absl::StatusOr<const Json*> Object(const FieldReader& fields, std::string_view name) {
  const Json* value = fields.Find(name);
  if (value == nullptr || !value->is_object()) return Refused(fields, name);
  return value;
}

// How the weights of a group of layers are kept.
absl::Status CheckWeights(const FieldReader& weights) {
  RETURN_IF_ERROR(MustBe(weights, "num_bits", 8));
  RETURN_IF_ERROR(MustBe(weights, "type", "int"));
  RETURN_IF_ERROR(MustBe(weights, "symmetric", true));
  RETURN_IF_ERROR(MustBeAbsent(weights, "actorder"));
  ASSIGN_OR_RETURN(const std::string strategy, weights.String("strategy"));
  const bool is_read = strategy == "channel" || strategy == "tensor" || strategy == "group";
  return is_read ? absl::OkStatus() : Refused(weights, "strategy");
}

// Scales of activations that are known beforehand would be tensors of the checkpoint.
absl::Status CheckActivations(const FieldReader& group) {
  RETURN_IF_ERROR(MustBeAbsent(group, "output_activations"));
  if (!group.Has("input_activations")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json* activations, Object(group, "input_activations"));
  const FieldReader fields(*activations, group.Path("input_activations") + ".");
  return MustBe(fields, "dynamic", true);
}

absl::Status CheckGroup(const FieldReader& group) {
  RETURN_IF_ERROR(MustBe(group, "targets", Json::array({"Linear"})));
  RETURN_IF_ERROR(CheckActivations(group));
  ASSIGN_OR_RETURN(const Json* weights, Object(group, "weights"));
  return CheckWeights(FieldReader(*weights, group.Path("weights") + "."));
}

}  // namespace

absl::StatusOr<bool> HasInt8Weights(const FieldReader& config) {
  RETURN_IF_ERROR(MustBeAbsent(config, "compression_config"));
  if (!config.Has(kField)) return false;
  ASSIGN_OR_RETURN(const Json* object, Object(config, kField));
  const FieldReader fields(*object, std::string(kField) + ".");
  RETURN_IF_ERROR(MustBe(fields, "quant_method", "compressed-tensors"));
  RETURN_IF_ERROR(MustBe(fields, "format", "int-quantized"));
  RETURN_IF_ERROR(MustBeAbsent(fields, "kv_cache_scheme"));
  if (const Json* sparsity = fields.Find("sparsity_config"); sparsity != nullptr) {
    if (!sparsity->empty()) return Refused(fields, "sparsity_config");
  }
  ASSIGN_OR_RETURN(const Json* groups, Object(fields, "config_groups"));
  if (groups->size() != 1 || !groups->front().is_object()) return Refused(fields, "config_groups");
  const std::string path = fields.Path("config_groups") + "." + groups->begin().key() + ".";
  RETURN_IF_ERROR(CheckGroup(FieldReader(groups->front(), path)));
  return true;
}

}  // namespace tandem
