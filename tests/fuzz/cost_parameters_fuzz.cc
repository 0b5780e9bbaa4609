// Parameter files of foreign bytes.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "engine/profile/cost_parameters.h"

// What is accepted predicts finite times, and comes back as it was written.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed = tandem::ParseCostParameters({reinterpret_cast<const char*>(data), size});
  if (!parsed.ok()) {
    TANDEM_CHECK(!parsed.status().message().empty(), "a refusal without a reason");
    return 0;
  }
  const auto model = tandem::StepModel::Create(parsed->steps);
  TANDEM_CHECK(model.ok(), "coefficients that were read make no model");
  const double ms = model
                        ->Step({.prefill_tokens = 300,
                                .prefill_pairs = 45150,
                                .decode_sequences = 7,
                                .decode_context = 7000})
                        .count();
  TANDEM_CHECK(std::isfinite(ms) && ms >= 0, "a time that is no time");
  const std::string text = tandem::WriteCostParameters(*parsed);
  const auto again = tandem::ParseCostParameters(text);
  TANDEM_CHECK(again.ok(), "what was written is refused");
  TANDEM_CHECK(tandem::WriteCostParameters(*again) == text, "what was written reads otherwise");
  return 0;
}
