#pragma once

#include "absl/status/status.h"
#include "tandem/v1/cluster.pb.h"

namespace tandem {

// Whether the router can use this report: values that it adds up must neither be negative nor
// overflow. INVALID_ARGUMENT names the field and its value.
absl::Status CheckLoad(const v1::WorkerLoad& load);

}  // namespace tandem
