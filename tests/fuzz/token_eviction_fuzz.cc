// How much KV a request gives up, as clients write it.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/token_eviction.h"

// What is accepted keeps some of each prompt, and comes back as it was written.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tandem::TokenEviction;
  const auto eviction = tandem::ParseTokenEviction({reinterpret_cast<const char*>(data), size});
  if (!eviction.ok()) return 0;
  TANDEM_CHECK(eviction->ratio > 1 && eviction->ratio <= TokenEviction::kMaxRatio, "no ratio");
  for (const int32_t tokens : {1, 2, 63, 4096, 1 << 20}) {
    const int32_t kept = eviction->StoredTokens(tokens);
    TANDEM_CHECK(kept >= 1 && kept <= tokens, "more is kept than there is, or nothing");
  }
  const auto again = tandem::ParseTokenEviction(tandem::ToString(*eviction));
  TANDEM_CHECK(again.ok(), "what was written is refused");
  TANDEM_CHECK(tandem::ToString(*again) == tandem::ToString(*eviction), "reads otherwise");
  return 0;
}
