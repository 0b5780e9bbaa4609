#include "server/openai/generation.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/status.h"
#include "server/openai/api_error.h"

namespace tandem::openai {
namespace {

std::optional<double> NumberIn(const HttpRequest& http, std::string_view header) {
  const std::optional<std::string_view> text = http.Header(header);
  double value = 0;
  if (!text || !absl::SimpleAtod(absl::string_view(text->data(), text->size()), &value)) return {};
  return value;
}

PieceOptions PiecesOf(const ServiceParts& parts, const AnswerOptions& options,
                      const CallPrompt& prompt) {
  const v1::GenerateRequest& request = prompt.request;
  PieceOptions pieces;
  pieces.max_tokens = request.max_tokens();
  if (!request.ignore_eos()) pieces.eos_token_ids = parts.model.eos_token_ids;
  pieces.stop_token_ids = {request.stop_token_ids().begin(), request.stop_token_ids().end()};
  pieces.reading = prompt.reading;
  if (options.logprobs) pieces.tokenizer = parts.tokenizer;
  if (options.echo) pieces.first_offset = CountCharacters(prompt.info.text);
  return pieces;
}

}  // namespace

void ReadHeaders(const HttpRequest& http, v1::GenerateRequest& request) {
  if (!http.tenant.empty()) request.set_tenant(http.tenant);
  const std::optional<std::string_view> session = http.Header("x-session-id");
  if (session && request.session_id().empty()) request.set_session_id(std::string(*session));
  for (const std::string_view name : {"x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"}) {
    const std::optional<double> slo = NumberIn(http, name);
    if (slo && !request.has_ttft_slo_ms()) request.set_ttft_slo_ms(*slo);
  }
  for (const std::string_view name : {"x-llm-d-slo-tpot-ms", "x-slo-tpot-ms"}) {
    const std::optional<double> slo = NumberIn(http, name);
    if (slo && !request.has_tpot_slo_ms()) request.set_tpot_slo_ms(*slo);
  }
}

absl::Status ValidateFields(const ServiceParts& parts, const v1::GenerateRequest& fields) {
  v1::GenerateRequest with_prompt = fields;
  with_prompt.mutable_token_ids()->add_ids(0);
  return ValidateRequest(with_prompt, parts.router.CurrentLimits(fields.route()));
}

absl::Status CheckChoices(const ServiceParts& parts, const v1::GenerateRequest& fields,
                          size_t prompts) {
  const int64_t width =
      std::max({1, fields.n(), fields.best_of(), fields.beam_search().beam_width()});
  const int64_t choices = width * static_cast<int64_t>(prompts);
  if (choices <= parts.max_in_flight) return absl::OkStatus();
  return WithParam(InvalidArgument("{} prompts of {} choices are {} choices; at most {} may be in "
                                   "flight at a time: send several requests",
                                   prompts, width, choices, parts.max_in_flight),
                   prompts > 1 ? "prompt" : "n");
}

std::function<bool()> WatchClient(HttpExchange& exchange) {
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange.OnGone([gone] { *gone = true; });
  return [gone] { return gone->load(); };
}

AnswerHead HeadOf(const ServiceParts& parts, const std::string& request_id) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {.id = request_id,
          .created = std::chrono::duration_cast<std::chrono::seconds>(now).count(),
          .model = parts.model.name,
          .fingerprint = "tandem-" + parts.version};
}

void Generate(const ServiceParts& parts, std::unique_ptr<AnswerWriter> writer,
              std::shared_ptr<HttpExchange> exchange, const std::string& request_id,
              std::vector<v1::GenerateRequest> requests) {
  const auto call = std::make_shared<GenerateCall>(
      parts.router, parts.loop, parts.clock, std::move(exchange), request_id, std::move(writer));
  call->Start(std::move(requests));
}

void Generate(const ServiceParts& parts, const AnswerFormat& format, const AnswerOptions& options,
              std::shared_ptr<HttpExchange> exchange, const std::string& request_id,
              std::vector<CallPrompt> prompts) {
  auto answer = std::make_unique<Answer>(HeadOf(parts, request_id), options, format);
  std::vector<v1::GenerateRequest> requests;
  for (CallPrompt& prompt : prompts) {
    const int32_t n = prompt.request.has_n() ? prompt.request.n() : 1;
    PieceOptions pieces = PiecesOf(parts, options, prompt);
    answer->AddPrompt(std::move(prompt.info), std::move(pieces), n);
    requests.push_back(std::move(prompt.request));
  }
  Generate(parts, std::move(answer), std::move(exchange), request_id, std::move(requests));
}

absl::StatusOr<TokenizeWork> ChatWork(const ServiceParts& parts, ChatInput input, Template add,
                                      const RequestLimits& limits, size_t text_bytes) {
  if (parts.chat == nullptr) return parts.no_chat;
  if (!input.tools.is_null() && !parts.chat->Mentions("tools")) {
    return WithParam(
        InvalidArgument("tools: the chat template of {} does not take tools: leave them "
                        "out",
                        limits.model),
        "tools");
  }
  const size_t most_bytes = limits.max_bytes_per_token.value_or(text_bytes) *
                            static_cast<size_t>(std::max(limits.max_context_tokens, 0));
  const auto shared = std::make_shared<const ChatInput>(std::move(input));
  return TokenizeWork(
      text_bytes,
      [shared, chat = parts.chat, add,
       most_bytes](const Tokenizer& tokenizer) -> absl::StatusOr<std::vector<int32_t>> {
        absl::StatusOr<std::vector<TextPart>> text = chat->Render(*shared);
        if (!text.ok()) return WithParam(text.status(), "messages");
        size_t bytes = 0;
        for (const TextPart& part : *text) bytes += part.text.size();
        if (bytes > most_bytes) {
          return WithParam(
              InvalidArgument("messages make a prompt of {} bytes, which has more tokens than the "
                              "context holds: shorten them",
                              bytes),
              "messages");
        }
        return tokenizer.EncodeParts(*text, {.add_template = add});
      });
}

}  // namespace tandem::openai
