// Files of simulated devices of foreign bytes.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "engine/simulated/simulated_device.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto device = tandem::ParseSimulatedDevice({reinterpret_cast<const char*>(data), size},
                                                   /*model=*/nullptr);
  if (!device.ok()) {
    TANDEM_CHECK(!device.status().message().empty(), "a refusal without a reason");
    return 0;
  }
  TANDEM_CHECK(device->BytesPerToken() > 0 && device->vocab_size > 0, "a model without tokens");
  TANDEM_CHECK(device->fingerprint != 0 && device->max_context_tokens > 0, "no model");
  for (const int32_t id : device->eos_token_ids) {
    TANDEM_CHECK(id >= 0 && id < device->vocab_size, "a token that there is not");
  }
  return 0;
}
