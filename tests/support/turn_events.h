#pragma once

#include <string>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// What a router sends for a request with one choice.
inline v1::GenerateResponse TextEvent(const std::string& text) {
  v1::GenerateResponse event;
  event.mutable_chunk()->set_text(text);
  event.mutable_chunk()->add_token_ids(1);
  return event;
}

inline v1::GenerateResponse FinishEvent(v1::FinishReason reason, const std::string& stop = "") {
  v1::GenerateResponse event;
  event.mutable_finish()->set_reason(reason);
  event.mutable_finish()->set_stop(stop);
  event.mutable_finish()->set_route(v1::ROUTE_UNIFIED);
  return event;
}

inline v1::GenerateResponse UsageEvent(int32_t prompt, int32_t completion, int32_t cached) {
  v1::GenerateResponse event;
  v1::Usage& usage = *event.mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(prompt);
  usage.set_completion_tokens(completion);
  usage.set_cached_tokens(cached);
  return event;
}

}  // namespace tandem
