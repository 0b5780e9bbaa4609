#include "bench/serving/openai_messages.h"

#include <limits>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

using SortedJson = nlohmann::json;

// The member of that name; null when there is none or `json` is no object.
const SortedJson& Member(const SortedJson& json, const char* name) {
  static const SortedJson* const kNull = new SortedJson(nullptr);
  if (!json.is_object()) return *kNull;
  const auto found = json.find(name);
  return found == json.end() ? *kNull : *found;
}

std::string TextOr(const SortedJson& json, std::string fallback) {
  return json.is_string() ? json.get<std::string>() : std::move(fallback);
}

// The value of `json` if it is an integer from 0 on that fits, else the fallback.
int32_t CountOr(const SortedJson& json, int32_t fallback) {
  if (!json.is_number_unsigned()) return fallback;
  const auto count = json.get<uint64_t>();
  return count <= std::numeric_limits<int32_t>::max() ? static_cast<int32_t>(count) : fallback;
}

bool HasText(const SortedJson& json) {
  return json.is_string() && !json.get_ref<const std::string&>().empty();
}

// Whether a choice carries output: text of a completion, or a part of a chat message.
bool HasOutput(const SortedJson& choice) {
  if (HasText(Member(choice, "text"))) return true;
  const SortedJson& delta = Member(choice, "delta");
  return HasText(Member(delta, "content")) || HasText(Member(delta, "reasoning")) ||
         HasText(Member(delta, "reasoning_content")) || Member(delta, "tool_calls").is_array();
}

absl::StatusCode CodeOf(long http) {
  switch (http) {
    case 400:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 408:
    case 504:
      return absl::StatusCode::kDeadlineExceeded;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    case 502:
    case 503:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<ServerInfo> ParseModels(std::string_view json, const std::string& wanted) {
  const SortedJson answer = ParseJson(json);
  const SortedJson& models = Member(answer, "data");
  if (!models.is_array() || models.empty()) {
    return InvalidArgument("the answer of /v1/models names no model");
  }
  std::string names;
  for (const SortedJson& model : models) {
    const std::string id = TextOr(Member(model, "id"), "");
    names += (names.empty() ? "" : ", ") + id;
    if (!wanted.empty() && id != wanted) continue;
    return ServerInfo{.model = id,
                      .max_context_tokens = CountOr(Member(model, "max_model_len"), 0)};
  }
  return NotFound("--model {}: the server has {}", wanted, names);
}

std::vector<int32_t> ParseTokens(std::string_view json) {
  std::vector<int32_t> tokens;
  const SortedJson answer = ParseJson(json);
  const SortedJson& ids = Member(answer, "tokens");
  if (!ids.is_array()) return tokens;
  for (const SortedJson& id : ids) {
    const int32_t token = CountOr(id, -1);
    if (token >= 0) tokens.push_back(token);
  }
  return tokens;
}

std::string ErrorText(std::string_view body) {
  constexpr size_t kMostBytes = 300;
  const SortedJson answer = ParseJson(body);
  const SortedJson& error = Member(answer, "error");
  std::string text = TextOr(error, TextOr(Member(error, "message"), std::string(body)));
  if (text.size() > kMostBytes) text.resize(kMostBytes);
  return text;
}

absl::Status StatusOfAnswer(long http, std::string_view body) {
  constexpr long kHttpOk = 200;
  if (http == kHttpOk) return absl::OkStatus();
  return MakeStatus(CodeOf(http), "HTTP {}: {}", http, ErrorText(body));
}

bool OpenAiAnswer::Add(std::string_view data) {
  if (data == "[DONE]") {
    done_ = true;
    return false;
  }
  const SortedJson event = ParseJson(data);
  if (!event.is_object()) {
    end_.status = DataLoss("an event of the stream is no JSON object");
    return false;
  }
  if (!Member(event, "error").is_null()) {
    end_.status = Internal("the server ended the stream: {}", ErrorText(data));
    return false;
  }
  const SortedJson& usage = Member(event, "usage");
  if (usage.is_object()) {
    end_.prompt_tokens = CountOr(Member(usage, "prompt_tokens"), -1);
    end_.output_tokens = CountOr(Member(usage, "completion_tokens"), -1);
    end_.cached_tokens =
        CountOr(Member(Member(usage, "prompt_tokens_details"), "cached_tokens"), -1);
  }
  const SortedJson& choices = Member(event, "choices");
  if (!choices.is_array() || choices.empty()) return false;
  const SortedJson& reason = Member(choices[0], "finish_reason");
  if (reason.is_string()) {
    finished_ = true;
    end_.finish_reason = reason.get<std::string>();
  }
  return HasOutput(choices[0]);
}

CallEnd OpenAiAnswer::Take(absl::Status transport) {
  if (end_.status.ok()) end_.status = std::move(transport);
  end_.whole = finished_ && done_;
  end_.counts_are_exact = false;
  return std::move(end_);
}

}  // namespace tandem::loadgen
