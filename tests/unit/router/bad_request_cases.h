#pragma once

#include <functional>
#include <limits>

#include "router/request/request_validation.h"

namespace tandem::bad_request_cases {

// What requests are checked against: a model of 100 tokens and a context of 64, with a tokenizer.
inline RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "sample";
  limits.vocab_size = 100;
  limits.max_context_tokens = 64;
  limits.eos_token_ids = {99, 7};
  limits.has_tokenizer = true;
  return limits;
}

// The simplest request that is valid.
inline v1::GenerateRequest Good() {
  v1::GenerateRequest request;
  request.set_text("hello");
  return request;
}

// What makes a request invalid, and how it is refused: with `code`, and a message that has `says`.
struct BadCase {
  const char* name;
  std::function<void(v1::GenerateRequest&)> spoil;
  absl::StatusCode code;
  const char* says;
};

// The code of most refusals, and numbers that no field may have.
inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline v1::SamplingParams& Sampling(v1::GenerateRequest& request) {
  return *request.mutable_sampling();
}
inline v1::BeamSearch& Beams(v1::GenerateRequest& request) {
  return *request.mutable_beam_search();
}

}  // namespace tandem::bad_request_cases
