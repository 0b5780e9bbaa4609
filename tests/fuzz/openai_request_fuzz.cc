// Bodies of HTTP requests, which anybody may send.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "server/anthropic/messages_request.h"
#include "server/openai/api_error.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"
#include "server/openai/responses/responses_request.h"

// A body is refused as the client's fault, or is a request; what was parsed can be printed and
// parsed again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem::openai;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<Json> json = ParseJsonBody(body);
  if (!json.ok()) {
    TANDEM_CHECK(ToApiError(json.status()).http_status == 400, "not the client's fault");
    return 0;
  }
  const absl::StatusOr<Json> again = ParseJsonBody(tandem::JsonText(*json));
  TANDEM_CHECK(again.ok() && *again == *json, "printed otherwise");
  const auto completion = ParseCompletion(*json);
  TANDEM_CHECK(completion.ok() || ToApiError(completion.status()).http_status == 400,
               "not the client's fault");
  TANDEM_CHECK(!completion.ok() || !completion->prompts.empty(), "a request without a prompt");
  const auto responses = ParseResponses(*json);
  TANDEM_CHECK(responses.ok() || ToApiError(responses.status()).http_status == 400,
               "not the client's fault");
  const auto messages =
      tandem::anthropic::ParseMessages(*json, tandem::anthropic::MaxTokens::kUnused);
  TANDEM_CHECK(messages.ok() || ToApiError(messages.status()).http_status == 400,
               "not the client's fault");
  const auto chat = ParseChat(*std::move(json));
  TANDEM_CHECK(chat.ok() || ToApiError(chat.status()).http_status == 400, "not the client's fault");
  return 0;
}
