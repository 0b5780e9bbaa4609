// Files of `tandem calibrate-kv` of foreign bytes.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "engine/profile/kv_sensitivity_file.h"

// What is accepted has positive numbers for each layer, and comes back as it was written.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = tandem::ParseKvSensitivity({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) {
    TANDEM_CHECK(!parsed.status().message().empty(), "a refusal without a reason");
    return 0;
  }
  const tandem::KvSensitivity& sensitivity = parsed->sensitivity;
  TANDEM_CHECK(!sensitivity.k.empty() && sensitivity.k.size() == sensitivity.v.size(),
               "layers without numbers");
  for (const auto* side : {&sensitivity.k, &sensitivity.v}) {
    for (const float one : *side) {
      TANDEM_CHECK(one > 0 && std::isfinite(one), "a sensitivity that is none");
    }
  }
  const std::string text = tandem::WriteKvSensitivity(*parsed);
  const auto again = tandem::ParseKvSensitivity(text);
  TANDEM_CHECK(again.ok() && again->sensitivity == sensitivity &&
                   again->model_fingerprint == parsed->model_fingerprint,
               "what was written reads otherwise");
  return 0;
}
