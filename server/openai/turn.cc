#include "server/openai/turn.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "server/openai/api_error.h"

namespace tandem::openai {

bool Turn::HasCalls() const {
  return std::any_of(parts.begin(), parts.end(),
                     [](const TurnPart& part) { return part.kind == TurnPart::Kind::kCall; });
}

bool Turn::IsCutOff() const { return finish && finish->reason() == v1::FINISH_REASON_LENGTH; }

TurnAnswer::TurnAnswer(std::unique_ptr<TurnFormat> format, TurnDelivery delivery,
                       const TurnReading& reading)
    : format_(std::move(format)),
      delivery_(delivery),
      include_reasoning_(reading.include_reasoning),
      parallel_tool_calls_(reading.parallel_tool_calls) {
  if (reading.reading != nullptr) reader_.emplace(reading.reading->ReaderOf(0));
}

std::string TurnAnswer::Add(size_t, const v1::GenerateResponse& event) {
  switch (event.event_case()) {
    case v1::GenerateResponse::kChunk:
      return AddChunk(event.chunk());
    case v1::GenerateResponse::kFinish:
      return AddFinish(event.finish());
    case v1::GenerateResponse::kSummary:
      turn_.usage = event.summary().usage();
      return "";
    case v1::GenerateResponse::kPromptLogprobs:
    case v1::GenerateResponse::EVENT_NOT_SET:
      break;
  }
  return "";
}

std::string TurnAnswer::AddChunk(const v1::Chunk& chunk) {
  if (!reader_) return Say(TurnPart::Kind::kText, chunk.text());
  if (reader_->in_reasoning()) turn_.reasoning_tokens += chunk.token_ids_size();
  return TakeAll(reader_->Feed(chunk.text()));
}

// Ends the last part, which counts as incomplete if max_tokens has ended the turn.
std::string TurnAnswer::AddFinish(const v1::ChoiceFinish& finish) {
  turn_.finish = finish;
  std::string events;
  if (reader_) events = TakeAll(reader_->Finish());
  return events + EndPart();
}

std::string TurnAnswer::TakeAll(const std::vector<AnswerEvent>& events) {
  std::string all;
  for (const AnswerEvent& event : events) all += Take(event);
  return all;
}

std::string TurnAnswer::Take(const AnswerEvent& event) {
  const bool is_wanted = event.call == 0 || parallel_tool_calls_;
  switch (event.kind) {
    case AnswerEvent::Kind::kContent:
      return Say(TurnPart::Kind::kText, event.text);
    case AnswerEvent::Kind::kReasoning:
      return include_reasoning_ ? Say(TurnPart::Kind::kReasoning, event.text) : std::string();
    case AnswerEvent::Kind::kCallBegin: {
      if (!is_wanted) return "";
      std::string ended = EndPart();
      return ended +
             BeginPart({.kind = TurnPart::Kind::kCall, .call_id = event.id, .name = event.name});
    }
    case AnswerEvent::Kind::kArguments:
      return is_wanted && !event.text.empty() ? Grow(event.text) : std::string();
    case AnswerEvent::Kind::kCallEnd:
      return is_wanted ? EndPart() : std::string();
  }
  return "";
}

std::string TurnAnswer::Say(TurnPart::Kind kind, std::string_view more) {
  if (more.empty()) return "";
  std::string events;
  if (!is_open_ || turn_.parts.back().kind != kind) {
    events = EndPart();
    events += BeginPart({.kind = kind});
  }
  return events + Grow(more);
}

std::string TurnAnswer::BeginPart(TurnPart part) {
  turn_.parts.push_back(std::move(part));
  is_open_ = true;
  return streams() ? format_->BeginPart(turn_, turn_.parts.size() - 1) : std::string();
}

std::string TurnAnswer::Grow(std::string_view more) {
  turn_.parts.back().text += more;
  return streams() ? format_->Grow(turn_, turn_.parts.size() - 1, more) : std::string();
}

std::string TurnAnswer::EndPart() {
  if (!is_open_) return "";
  is_open_ = false;
  turn_.parts.back().is_complete = !turn_.IsCutOff();
  return streams() ? format_->EndPart(turn_, turn_.parts.size() - 1) : std::string();
}

std::string TurnAnswer::Finish() {
  return streams() ? format_->End(turn_) : JsonText(format_->Whole(turn_));
}

std::string TurnAnswer::StreamError(const absl::Status& status) {
  return format_->Error(turn_, status);
}

absl::Status CheckTurn(const ChatRequest& chat) {
  const v1::GenerateRequest& request = chat.request;
  const auto refuse = [](std::string_view field, std::string_view why) {
    return WithParam(Unimplemented("{} is not supported here: {}", field, why), field);
  };
  if (std::max(request.n(), request.best_of()) > 1) return refuse("n", "there is one answer");
  if (request.has_beam_search()) return refuse("use_beam_search", "there is one answer");
  if (chat.answer.logprobs) return refuse("logprobs", "use /v1/chat/completions");
  if (chat.answer.prompt_logprobs) return refuse("prompt_logprobs", "use /v1/completions");
  if (chat.answer.return_token_ids) return refuse("return_token_ids", "use /v1/chat/completions");
  return absl::OkStatus();
}

}  // namespace tandem::openai
