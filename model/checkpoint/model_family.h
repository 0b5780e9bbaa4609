#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {

// What sets a family of models apart, and its defaults for fields that config.json leaves out.
// Source: the configuration classes of transformers 5.
struct ModelFamily {
  std::string_view model_type;
  std::string_view architecture;
  std::optional<int32_t> default_head_dim;      // empty: hidden_size / num_attention_heads
  std::optional<int32_t> default_num_kv_heads;  // empty: num_attention_heads
  bool reads_attention_bias = false;
  bool always_qkv_bias = false;
  bool qk_norm = false;
};

// The family that model_type of a config.json names; it is never null. UNIMPLEMENTED for another
// family, or for an architecture of this family that this build does not compute.
absl::StatusOr<const ModelFamily*> FindFamily(const FieldReader& fields);

}  // namespace tandem
