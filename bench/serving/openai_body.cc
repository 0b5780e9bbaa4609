#include "bench/serving/openai_body.h"

#include "base/json.h"
#include "base/status.h"
#include "bench/serving/prompt.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

using SortedJson = nlohmann::json;

}  // namespace

std::string MakeOpenAiBody(const OpenAiBody& body, const ScheduledRequest& request,
                           const std::vector<int32_t>& pool) {
  SortedJson json = {{"model", body.model},
                     {"temperature", body.options.temperature},
                     {"stream", true},
                     {"stream_options", {{"include_usage", true}}}};
  // Servers that do not know this field ignore it.
  if (body.options.ignore_eos) json["ignore_eos"] = true;
  if (body.api == OpenAiApi::kChat) {
    json["messages"] = {{{"role", "user"}, {"content", MakePromptText(request)}}};
    json["max_completion_tokens"] = request.output_tokens;
  } else {
    json["prompt"] = pool.empty() ? SortedJson(MakePromptText(request))
                                  : SortedJson(MakePromptTokens(request, pool));
    json["max_tokens"] = request.output_tokens;
  }
  if (!body.extra_json.empty()) json.update(ParseJson(body.extra_json));
  return JsonText(json);
}

absl::Status CheckExtraBody(const std::string& text) {
  if (text.empty() || ParseJson(text).is_object()) return absl::OkStatus();
  return InvalidArgument("--extra-body {}: give a JSON object, such as {{\"top_p\": 0.9}}", text);
}

}  // namespace tandem::loadgen
