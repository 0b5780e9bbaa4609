#pragma once

#include "absl/status/status.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/status.h"

namespace tandem {

// Conversions between the statuses of Abseil and gRPC. The codes of both are the same numbers with
// the same meaning (base/status.h), which is checked at compile time.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status ToAbslStatus(const grpc::Status& status);

// Ends the unary call of `context` with this status; the method returns the result.
grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext& context, const absl::Status& status);

}  // namespace tandem
