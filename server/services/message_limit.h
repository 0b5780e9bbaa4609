#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// gRPC itself refuses requests larger than --max-message-bytes times this factor before they take
// memory. A smaller request that still exceeds --max-message-bytes is refused by the router, with a
// better message.
inline constexpr uint64_t kGrpcLimitFactor = 2;

// INVALID_ARGUMENT for a request of `bytes` where --max-message-bytes is `max_bytes`.
absl::Status RequestTooLarge(uint64_t bytes, uint64_t max_bytes);

// The error of RequestTooLarge, made from gRPC's own message about a request that it refused before
// the router saw it; nothing for any other message.
std::optional<absl::Status> ReadTooLarge(std::string_view grpc_message);

}  // namespace tandem
