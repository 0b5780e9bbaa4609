#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// gRPC itself refuses requests of more than this many times --max-message-bytes, before they take
// memory. The router answers those between the two limits.
inline constexpr uint64_t kGrpcLimitFactor = 2;

// INVALID_ARGUMENT for a request of `bytes` where --max-message-bytes is `max_bytes`.
absl::Status RequestTooLarge(uint64_t bytes, uint64_t max_bytes);

// The same, from what gRPC says in the router's place of a request beyond its own limit; nothing for
// any other message.
std::optional<absl::Status> ReadTooLarge(std::string_view grpc_message);

}  // namespace tandem
