#include "base/retry_after.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <system_error>

#include "absl/strings/cord.h"
#include "base/check.h"

namespace tandem {
namespace {

constexpr char kPayloadType[] = "tandem/retry-after-ms";

}  // namespace

void SetRetryAfter(absl::Status& status, std::chrono::milliseconds after) {
  TANDEM_CHECK(!status.ok(), "an OK status says nothing of retries");
  after = std::clamp<std::chrono::milliseconds>(after, {}, kMaxRetryAfter);
  status.SetPayload(kPayloadType, absl::Cord(std::to_string(after.count())));
}

std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadType);
  return payload ? ParseRetryAfter(std::string(*payload)) : std::nullopt;
}

std::optional<std::chrono::milliseconds> ParseRetryAfter(std::string_view text) {
  int64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stopped, error] = std::from_chars(text.data(), end, count);
  constexpr int64_t kMax = std::chrono::milliseconds(kMaxRetryAfter).count();
  if (error != std::errc() || stopped != end || count < 0 || count > kMax) return std::nullopt;
  return std::chrono::milliseconds(count);
}

}  // namespace tandem
