#include "server/openai/choice_pieces.h"

#include <algorithm>
#include <utility>

#include "server/openai/token_texts.h"

namespace tandem::openai {
namespace {

bool Contains(const std::vector<int32_t>& ids, int32_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

ChoicePieces::ChoicePieces(const PieceOptions& options, int32_t index, const PromptInfo& prompt)
    : options_(options), offset_(options.first_offset) {
  next_.index = index;
  next_.first = true;
  next_.prompt = &prompt;
  if (options.reading != nullptr) {
    reader_ = options.reading->ReaderOf(index);
    next_.events.emplace();
  }
  if (options.tokenizer != nullptr) offsets_ = options.tokenizer->StartText(SkipSpecial::kYes);
}

std::optional<Piece> ChoicePieces::Add(const v1::Chunk& chunk) {
  Append(chunk);
  if (MayBeLast(chunk)) return std::nullopt;
  if (next_.events && next_.events->empty() && !next_.first) return std::nullopt;
  return Take();
}

bool ChoicePieces::MayBeLast(const v1::Chunk& chunk) const {
  if (chunk.token_ids().empty()) return true;  // text without a token comes just before the end
  return completion_tokens_ >= options_.max_tokens ||
         Contains(options_.eos_token_ids, last_token_) ||
         Contains(options_.stop_token_ids, last_token_);
}

void ChoicePieces::Append(const v1::Chunk& chunk) {
  next_.text += chunk.text();
  if (reader_) {
    if (reader_->in_reasoning()) reasoning_tokens_ += chunk.token_ids_size();
    ReadText(chunk.text());
  }
  for (const int32_t id : chunk.token_ids()) {
    next_.token_ids.push_back(id);
    if (offsets_ == nullptr) continue;
    next_.text_offsets.push_back(offset_);
    offset_ += CountCharacters(offsets_->Push(id));
  }
  next_.logprobs.insert(next_.logprobs.end(), chunk.logprobs().begin(), chunk.logprobs().end());
  completion_tokens_ += chunk.token_ids_size();
  if (!chunk.token_ids().empty()) last_token_ = chunk.token_ids().rbegin()[0];
}

void ChoicePieces::ReadText(std::string_view text) {
  for (AnswerEvent& event : reader_->Feed(text)) next_.events->push_back(std::move(event));
}

Piece ChoicePieces::Take() {
  Piece piece = std::exchange(next_, Piece{});
  next_.index = piece.index;
  next_.prompt = piece.prompt;
  if (reader_) next_.events.emplace();
  return piece;
}

Piece ChoicePieces::Finish(const v1::ChoiceFinish& finish) {
  if (reader_) {
    for (AnswerEvent& event : reader_->Finish()) next_.events->push_back(std::move(event));
  }
  Piece piece = Take();
  piece.finish = finish;
  piece.has_calls = reader_ && reader_->num_calls() > 0;
  piece.stop_reason = StopReason(finish);
  return piece;
}

Json ChoicePieces::StopReason(const v1::ChoiceFinish& finish) const {
  if (!finish.stop().empty()) return finish.stop();
  const bool stopped = finish.reason() == v1::FINISH_REASON_STOP;
  if (stopped && Contains(options_.stop_token_ids, last_token_)) return last_token_;
  return nullptr;
}

}  // namespace tandem::openai
