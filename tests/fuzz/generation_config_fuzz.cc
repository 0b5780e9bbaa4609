// generation_config.json of foreign bytes, beside the config of a small model.
#include <cstddef>
#include <cstdint>
#include <set>

#include "base/check.h"
#include "model/checkpoint/model_config.h"

// Whatever it says, sequences end at tokens that there are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::ModelConfig config;
  config.vocab_size = 1000;
  config.eos_token_ids = {2};
  const bool ok =
      tandem::ApplyGenerationConfig({reinterpret_cast<const char*>(data), size}, config).ok();
  if (!ok) return 0;  // the caller drops the config
  std::set<int32_t> ids;
  for (const int32_t id : config.eos_token_ids) {
    TANDEM_CHECK(id >= 0 && id < config.vocab_size, "a token that there is not");
    TANDEM_CHECK(ids.insert(id).second, "a token twice");
  }
  return 0;
}
