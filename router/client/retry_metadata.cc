#include "router/client/retry_metadata.h"

#include <string>

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
  const auto after = ParseRetryAfter({found->second.data(), found->second.size()});
  if (after) SetRetryAfter(status, *after);
}

}  // namespace tandem
