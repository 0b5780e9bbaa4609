#pragma once

#include "absl/status/status.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace tandem {

// How a status' retry-after (base/retry_after.h) travels over gRPC: as trailing metadata.
inline constexpr char kRetryAfterKey[] = "retry-after-ms";

// Adds the retry-after of `status`, if it has one, to the trailing metadata of a call that is about
// to finish with that status.
void SendRetryAfter(grpc::ServerContextBase& context, const absl::Status& status);
// Adds to `status`, with which a call has ended and which is not OK, the retry-after that came with
// it.
void TakeRetryAfter(const grpc::ClientContext& context, absl::Status& status);

}  // namespace tandem
