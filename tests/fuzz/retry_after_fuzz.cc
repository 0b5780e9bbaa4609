// The retry-after trailer of foreign bytes.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/clock.h"
#include "base/retry_after.h"

// What is accepted can be waited for, and travels on as it came.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto after = tandem::ParseRetryAfter({reinterpret_cast<const char*>(data), size});
  if (!after) return 0;
  TANDEM_CHECK(after->count() >= 0, "a wait that is over before it begins");
  const tandem::TimePoint now = std::chrono::steady_clock::now();
  TANDEM_CHECK(now + *after >= now && *after <= tandem::kMaxRetryAfter, "a wait for ever");
  absl::Status status = absl::ResourceExhaustedError("full");
  tandem::SetRetryAfter(status, *after);
  TANDEM_CHECK(tandem::RetryAfter(status) == after, "a wait that is not what it was");
  return 0;
}
