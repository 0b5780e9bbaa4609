#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "router/request/request_spec.h"
#include "router/request/request_validation.h"

namespace tandem {

// What the router itself adds to a request.
struct RequestIdentity {
  uint64_t id = 0;    // used at the workers, and towards clients that gave the request no name
  uint64_t seed = 0;  // of sampling, used where the client gave none
  TimePoint received;
  TimePoint deadline;
};

// Fills in every default of a valid request (ValidateRequest), except what depends on the prompt.
RequestSpec ResolveRequest(const v1::GenerateRequest& request, const RequestLimits& limits,
                           const RequestIdentity& identity);

// Adds the prompt's tokens and the values that depend on them, once the bad words are tokenized.
// INVALID_ARGUMENT when prompt and output do not fit into the context, or when bad words leave no
// token.
absl::Status SetPrompt(google::protobuf::RepeatedField<int32_t> prompt,
                       const v1::GenerateRequest& request, const RequestLimits& limits,
                       RequestSpec& spec);

}  // namespace tandem
