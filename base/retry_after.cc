#include "base/retry_after.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "base/check.h"

namespace tandem {
namespace {

constexpr char kPayloadType[] = "tandem/retry-after-ms";

}  // namespace

void SetRetryAfter(absl::Status& status, std::chrono::milliseconds after) {
  TANDEM_CHECK(!status.ok(), "an OK status says nothing of retries");
  status.SetPayload(kPayloadType, absl::Cord(std::to_string(after.count())));
}

std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status) {
  const auto payload = status.GetPayload(kPayloadType);
  int64_t count = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &count) || count < 0) return std::nullopt;
  return std::chrono::milliseconds(count);
}

}  // namespace tandem
