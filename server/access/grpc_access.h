#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "server/access/access_control.h"

namespace grpc {
class ServerContextBase;
}

namespace tandem {

// Calls AccessControl::Check with the API key of a gRPC call, which is in its metadata as
// "authorization: Bearer KEY" or "x-api-key". Null `access`: everybody may do everything.
absl::StatusOr<std::optional<Caller>> CheckCall(const grpc::ServerContextBase& context,
                                                AccessControl* access, Scope needed);

}  // namespace tandem
