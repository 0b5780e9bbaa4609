#pragma once

#include <chrono>

#include "base/clock.h"
#include "grpcpp/server_context.h"

namespace tandem {

// The deadline of a call on the steady clock; kNoDeadline when the client set none.
inline TimePoint DeadlineOf(const grpc::ServerContextBase& context) {
  const auto deadline = context.deadline();
  const auto left = deadline - std::chrono::system_clock::now();
  if (left > std::chrono::hours(24 * 365)) return kNoDeadline;  // how gRPC says that none was set
  return std::chrono::steady_clock::now() + left;
}

}  // namespace tandem
