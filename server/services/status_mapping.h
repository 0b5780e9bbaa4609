#pragma once

#include "absl/status/status.h"
#include "grpcpp/support/status.h"

namespace tandem {

// The codes of both sides are the same numbers with the same meaning (base/status.h), here checked
// once at compile time.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status ToAbslStatus(const grpc::Status& status);

}  // namespace tandem
