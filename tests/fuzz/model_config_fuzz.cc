#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/checkpoint/model_config.h"

// What the parser accepts can be computed with: sizes in range that divide, finite frequencies.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = tandem::ParseModelConfig({reinterpret_cast<const char*>(data), size});
  if (!config.ok()) return 0;
  if (config->num_kv_heads < 1 || config->num_heads % config->num_kv_heads != 0) std::abort();
  if (config->head_dim < 2 || config->head_dim % 2 != 0 || config->head_dim > 1024) std::abort();
  if (config->num_layers < 1 || config->vocab_size < 1 || config->hidden_size < 1) std::abort();
  if (!(config->rms_norm_eps > 0) || config->sliding_window < 0) std::abort();
  for (int32_t id : config->eos_token_ids) {
    if (id < 0 || id >= config->vocab_size) std::abort();
  }
  for (float frequency : tandem::RopeInverseFrequencies(*config)) {
    if (!std::isfinite(frequency)) std::abort();
  }
  return 0;
}
