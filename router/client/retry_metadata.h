#pragma once

#include "absl/status/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace tandem {

// How a status' retry-after (base/retry_after.h) travels over gRPC: as trailing metadata.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";

// Call before the call is finished with `status`. Adds nothing if `status` has no retry-after.
void SendRetryAfter(grpc::ServerContextBase& context, const absl::Status& status);
// Call once the call has ended with `status`, which is not OK: adds the retry-after that it came with.
void TakeRetryAfter(const grpc::ClientContext& context, absl::Status& status);

}  // namespace tandem
