#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/serving/backend.h"
#include "bench/serving/schedule.h"

namespace tandem::loadgen {

enum class OpenAiApi : uint8_t { kCompletions, kChat };

// What the body of a request is made from.
struct OpenAiBody {
  OpenAiApi api = OpenAiApi::kCompletions;
  std::string model;
  RequestOptions options;
  std::string extra_json;  // an object whose fields replace ours; empty: none
};

// The body of a streamed request. `pool`: ids of the server's tokenizer; when it is empty, and
// always for chat, the prompt is text.
std::string MakeOpenAiBody(const OpenAiBody& body, const ScheduledRequest& request,
                           const std::vector<int32_t>& pool);

// INVALID_ARGUMENT unless `text` is empty or a JSON object.
absl::Status CheckExtraBody(const std::string& text);

}  // namespace tandem::loadgen
