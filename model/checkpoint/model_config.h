#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/dtype.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/quantization_config.h"

namespace tandem {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3 };

struct RopeConfig {
  float theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1;
  // The parameters of the llama3 scaling. Source: Llama 3.1 model card; transformers
  // modeling_rope_utils (llama3).
  float low_freq_factor = 1;
  float high_freq_factor = 4;
  int32_t original_max_position_embeddings = 0;
};

// A decoder-only transformer of the supported families: Llama 2/3.x, Mistral, Qwen2/2.5, Qwen3.
// Families differ by fields and not by classes, so that the forward pass is one straight line.
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
  int32_t sliding_window = 0;  // positions that a query sees, including its own; 0: all
  bool qkv_bias = false;       // set for Qwen2, or by attention_bias
  bool output_bias = false;    // set by attention_bias of Llama
  bool qk_norm = false;        // set for Qwen3
  bool tie_word_embeddings = false;
  std::optional<QuantizedWeights> quantized_weights;  // nothing: not quantised
  // torch_dtype of config.json, which activations and KV follow; weights are kept in each tensor's
  // own dtype. Without torch_dtype it is bf16, until AdoptDType replaces it.
  DType dtype = DType::kBF16;
  bool names_dtype = false;            // config.json has torch_dtype
  std::vector<int32_t> eos_token_ids;  // of generation_config.json, or else of config.json
  int32_t bos_token_id = -1;           // -1: none
};

// Parses a config.json. Accepts any bytes. INVALID_ARGUMENT names a missing, NaN or out-of-range
// field and its value; UNIMPLEMENTED names a family, activation or option that this build does not
// compute, with those that it does. Unsupported options are refused and never ignored.
absl::StatusOr<ModelConfig> ParseModelConfig(std::string_view json);

// Replaces the eos ids of `config` by those of a generation_config.json, as transformers does;
// nothing else of the file counts here. A file without eos ids changes nothing, since a model that
// never ends its answers is no use to a server. Accepts any bytes. INVALID_ARGUMENT as for
// ParseModelConfig; the ids are then incomplete.
absl::Status ApplyGenerationConfig(std::string_view json, ModelConfig& config);

// Loads config.json, with the eos ids of generation_config.json where that has some. Errors name
// the path.
absl::StatusOr<ModelConfig> LoadModelConfig(const std::string& directory);

// Where config.json has no torch_dtype, takes the dtype that most bytes of the weights have.
void AdoptDType(const Checkpoint& checkpoint, ModelConfig& config);

// [head_dim / 2] inverse frequencies of the rotary embedding, scaling applied.
std::vector<float> RopeInverseFrequencies(const ModelConfig& config);

}  // namespace tandem
