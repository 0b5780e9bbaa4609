#include "model/checkpoint/model_family.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/status.h"

namespace tandem {
namespace {

constexpr std::array<ModelFamily, 4> kFamilies = {{
    {.model_type = "llama", .architecture = "LlamaForCausalLM", .reads_attention_bias = true},
    {.model_type = "mistral", .architecture = "MistralForCausalLM", .default_num_kv_heads = 8},
    {.model_type = "qwen2", .architecture = "Qwen2ForCausalLM", .always_qkv_bias = true},
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .default_head_dim = 128,
     .reads_attention_bias = true,
     .qk_norm = true},
}};

}  // namespace

absl::StatusOr<const ModelFamily*> FindFamily(const FieldReader& fields) {
  ASSIGN_OR_RETURN(const std::string model_type, fields.String("model_type"));
  const auto family = std::find_if(
      kFamilies.begin(), kFamilies.end(),
      [&](const ModelFamily& candidate) { return candidate.model_type == model_type; });
  if (family == kFamilies.end()) {
    return Unimplemented("model_type is {}: this build computes llama, mistral, qwen2 and qwen3",
                         Quoted(model_type));
  }
  const nlohmann::json* architectures = fields.Find("architectures");
  if (architectures == nullptr) return &*family;
  if (!architectures->is_array() || architectures->size() != 1 ||
      !architectures->front().is_string()) {
    return InvalidArgument("architectures is {}: it must be an array of one name",
                           Shown(*architectures));
  }
  const auto* architecture = architectures->front().get_ptr<const std::string*>();
  if (*architecture != family->architecture) {
    return Unimplemented("architectures is {}: of {} this build computes {}", Quoted(*architecture),
                         family->model_type, family->architecture);
  }
  return &*family;
}

}  // namespace tandem
