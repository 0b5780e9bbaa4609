#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "router/request/request_spec.h"
#include "router/request/request_validation.h"

namespace tandem {

// The router itself gives these to a request.
struct RequestIdentity {
  uint64_t id = 0;    // at the workers; clients see it where they gave no name
  uint64_t seed = 0;  // of sampling, where the client gave none
  TimePoint received;
  TimePoint deadline;
};

// A valid request (ValidateRequest) with every default filled in, but for what depends on the
// prompt.
RequestSpec ResolveRequest(const v1::GenerateRequest& request, const RequestLimits& limits,
                           const RequestIdentity& identity);

// Adds the prompt's tokens and what depends on them. INVALID_ARGUMENT when prompt and output do not
// fit into the context.
absl::Status SetPrompt(google::protobuf::RepeatedField<int32_t> prompt,
                       const v1::GenerateRequest& request, const RequestLimits& limits,
                       RequestSpec& spec);

}  // namespace tandem
