#include "server/openai/answer.h"

#include <string_view>
#include <utility>

#include "base/check.h"
#include "server/http/http_exchange.h"
#include "server/openai/api_error.h"
#include "server/openai/finish_json.h"

namespace tandem::openai {
namespace {

constexpr char kDone[] = "[DONE]";

void Append(const Piece& more, Piece& piece) {
  piece.text += more.text;
  if (more.events)
    piece.events->insert(piece.events->end(), more.events->begin(), more.events->end());
  piece.token_ids.insert(piece.token_ids.end(), more.token_ids.begin(), more.token_ids.end());
  piece.logprobs.insert(piece.logprobs.end(), more.logprobs.begin(), more.logprobs.end());
  piece.text_offsets.insert(piece.text_offsets.end(), more.text_offsets.begin(),
                            more.text_offsets.end());
}

}  // namespace

Answer::Answer(AnswerHead head, const AnswerOptions& options, const AnswerFormat& format)
    : head_(std::move(head)),
      options_(options),
      format_(format),
      event_begin_(options.stream ? EventBegin() : "") {}

void Answer::AddPrompt(PromptInfo info, PieceOptions pieces, int32_t n) {
  Prompt& prompt = prompts_.emplace_back(Prompt{.info = std::move(info),
                                                .pieces = std::move(pieces),
                                                .first_index = num_choices_,
                                                .choices = {}});
  for (int32_t i = 0; i < n; ++i) {
    prompt.choices.emplace_back(prompt.pieces, num_choices_++, prompt.info);
  }
  if (!options_.stream) whole_.resize(static_cast<size_t>(num_choices_));
}

std::string Answer::Add(size_t index, const v1::GenerateResponse& event) {
  Prompt& prompt = prompts_[index];
  switch (event.event_case()) {
    case v1::GenerateResponse::kChunk:
      return AddChunk(prompt, event.chunk());
    case v1::GenerateResponse::kFinish:
      return AddFinish(prompt, event.finish());
    case v1::GenerateResponse::kSummary:
      AddSummary(event.summary());
      return "";
    case v1::GenerateResponse::kPromptLogprobs:
      for (const v1::TokenLogprobs& token : event.prompt_logprobs().tokens()) {
        prompt.info.logprobs.push_back(token);
      }
      return "";
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
  return "";
}

std::string Answer::AddChunk(Prompt& prompt, const v1::Chunk& chunk) {
  ChoicePieces& choice = prompt.choices[static_cast<size_t>(chunk.index())];
  std::optional<Piece> piece = choice.Add(chunk);
  return piece ? Take(prompt, choice, *std::move(piece)) : std::string();
}

std::string Answer::AddFinish(Prompt& prompt, const v1::ChoiceFinish& finish) {
  if (!first_finish_) first_finish_ = finish;
  ChoicePieces& choice = prompt.choices[static_cast<size_t>(finish.index())];
  Piece piece = choice.Finish(finish);
  if (prompt.pieces.reading != nullptr) {
    reasoning_tokens_ = reasoning_tokens_.value_or(0) + choice.reasoning_tokens();
  }
  if (options_.return_timing) {
    v1::ChoiceFinish named = finish;
    named.set_index(piece.index);
    timing_.push_back(TimingJson(named));
  }
  return Take(prompt, choice, std::move(piece));
}

void Answer::AddSummary(const v1::Summary& summary) {
  const v1::Usage& usage = summary.usage();
  completion_tokens_ += usage.completion_tokens();
  cached_tokens_ += usage.cached_tokens();
  prompt_tokens_ += usage.prompt_tokens();
}

std::string Answer::Take(const Prompt& prompt, const ChoicePieces& choice, Piece piece) {
  if (!options_.stream) {
    Keep(std::move(piece));
    return "";
  }
  std::string events;
  for (const Json& delta : format_.Deltas(piece, options_)) {
    const bool role = delta.contains("delta") && delta["delta"].contains("role");
    std::string event = event_begin_ + JsonText(delta) + "]";
    if (options_.continuous_usage) {
      event +=
          R"(,"usage":)" + JsonText(UsageJson(static_cast<int64_t>(prompt.info.token_ids.size()),
                                              role ? 0 : choice.completion_tokens()));
    }
    events += SseEvent(event + "}");
  }
  return events;
}

// The text with which all events of a stream begin, up to the elements of "choices". It is made
// once, because building a JSON tree for every token took a tenth of the router's instructions. The
// head ends with its empty list of choices, which is cut off.
std::string Answer::EventBegin() const {
  std::string text = JsonText(Head(format_.chunk_object()));
  constexpr std::string_view kEnd = "]}";
  TANDEM_CHECK(text.ends_with(kEnd), "choices are not the last field of an event's head");
  text.resize(text.size() - kEnd.size());
  return text;
}

void Answer::Keep(Piece piece) {
  Piece& whole = whole_[static_cast<size_t>(piece.index)];
  if (piece.first) {
    whole = std::move(piece);
    return;
  }
  Append(piece, whole);
  if (!piece.finish) return;
  whole.finish = std::move(piece.finish);
  whole.has_calls = piece.has_calls;
  whole.stop_reason = std::move(piece.stop_reason);
}

std::string Answer::Finish() {
  if (!options_.stream) {
    Json json = Head(format_.object());
    for (const Piece& piece : whole_) json["choices"].push_back(format_.Choice(piece, options_));
    json["usage"] = UsageJson(prompt_tokens_, completion_tokens_);
    if (options_.return_timing) json["timing"] = timing_;
    return JsonText(json);
  }
  std::string events;
  if (options_.include_usage || options_.return_timing) {
    Json json = Head(format_.chunk_object());
    if (options_.include_usage) json["usage"] = UsageJson(prompt_tokens_, completion_tokens_);
    if (options_.return_timing) json["timing"] = timing_;
    events = SseEvent(JsonText(json));
  }
  return events + SseEvent(kDone);
}

std::string Answer::StreamError(const absl::Status& status) {
  return SseEvent(JsonText(ErrorJson(ToApiError(status)))) + SseEvent(kDone);
}

Json Answer::Head(std::string_view object) const {
  Json json;
  json["id"] = std::string(format_.id_prefix()) + head_.id;
  json["object"] = object;
  json["created"] = head_.created;
  json["model"] = head_.model;
  json["system_fingerprint"] = head_.fingerprint;
  json["choices"] = Json::array();
  return json;
}

Json Answer::UsageJson(int64_t prompt_tokens, int64_t completion_tokens) const {
  Json usage;
  usage["prompt_tokens"] = prompt_tokens;
  usage["completion_tokens"] = completion_tokens;
  usage["total_tokens"] = prompt_tokens + completion_tokens;
  Json details;
  details["cached_tokens"] = cached_tokens_;
  usage["prompt_tokens_details"] = std::move(details);
  if (reasoning_tokens_) {
    usage["completion_tokens_details"]["reasoning_tokens"] = *reasoning_tokens_;
  }
  return usage;
}

}  // namespace tandem::openai
