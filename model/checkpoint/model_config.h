#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"

namespace tandem {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

struct RopeConfig {
  float theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1;
  // llama3 only. Source: Llama 3.1 model card; transformers modeling_rope_utils (llama3).
  float low_freq_factor = 1;
  float high_freq_factor = 4;
  int32_t original_max_position_embeddings = 0;
};

// What a decoder-only transformer of the supported families is: Llama 2/3.x, Mistral, Qwen2/2.5,
// Qwen3. Families are fields, not classes: forward is one straight line.
struct ModelConfig {
  std::string model_type;  // as in config.json: "llama", "mistral", "qwen2", "qwen3"
  int32_t hidden_size = 0;
  int32_t num_layers = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  int32_t intermediate_size = 0;
  int32_t vocab_size = 0;
  int32_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-5f;
  RopeConfig rope;
  int32_t sliding_window = 0;  // 0: none; a query sees the last `sliding_window` positions, its own
                               // included
  bool qkv_bias = false;       // Qwen2, or attention_bias
  bool output_bias = false;    // attention_bias of Llama
  bool qk_norm = false;        // Qwen3
  bool tie_word_embeddings = false;
  DType dtype = DType::kBF16;          // torch_dtype; the tensors' own dtypes count
  std::vector<int32_t> eos_token_ids;  // config.json and generation_config.json together
  int32_t bos_token_id = -1;           // -1: none
};

// Reads a config.json. Total over any bytes. INVALID_ARGUMENT for a missing, NaN or out-of-range
// field, by name and value; UNIMPLEMENTED for a family, activation or option that this build does
// not compute (it is refused, never ignored), with those it does.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json);

// Adds the eos ids of a generation_config.json to those of `config`: nothing else of it counts
// here. Total over any bytes. INVALID_ARGUMENT as above; then some may have been added.
absl::Status AddGenerationConfig(std::string_view json, ModelConfig& config);

// config.json and, when present, the eos ids of generation_config.json. Errors name the path.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory);

// [head_dim / 2] inverse frequencies of the rotary embedding, scaling applied.
std::vector<float> RopeInverseFrequencies(const ModelConfig& config);

}  // namespace tandem
