#include "router/retry_metadata.h"

#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "base/retry_after.h"

namespace tandem {

void SendRetryAfter(grpc::ServerContextBase& context, const absl::Status& status) {
  if (status.ok()) return;
  const auto after = RetryAfter(status);
  if (after) context.AddTrailingMetadata(kRetryAfterKey, std::to_string(after->count()));
}

void TakeRetryAfter(const grpc::ClientContext& context, absl::Status& status) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find(kRetryAfterKey);
  if (found == trailers.end()) return;
  const absl::string_view text(found->second.data(), found->second.size());
  int64_t count = 0;
  if (absl::SimpleAtoi(text, &count) && count >= 0) {
    SetRetryAfter(status, std::chrono::milliseconds(count));
  }
}

}  // namespace tandem
