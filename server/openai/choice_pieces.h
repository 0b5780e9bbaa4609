#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "server/openai/answer_reading.h"
#include "server/openai/piece.h"

namespace tandem::openai {

// What determines the pieces of a choice, besides its events.
struct PieceOptions {
  int32_t max_tokens = 0;
  std::vector<int32_t> eos_token_ids;    // empty where they are ignored
  std::vector<int32_t> stop_token_ids;   // those that the client gave
  const Tokenizer* tokenizer = nullptr;  // set where text_offsets are wanted
  size_t first_offset = 0;               // where the output's text begins: after an echoed prompt
  std::shared_ptr<const ChoiceReading> reading = nullptr;  // null: the text is not searched
};

// Makes pieces for the client from the events of one choice. A token that may end the choice is
// held back until the choice's finish, so that a choice of n tokens makes n pieces at most, as
// clients that measure the time between tokens expect. A token that may belong to a mark of
// reasoning or of a tool call is held back until that is clear. Not thread-safe.
class ChoicePieces {
 public:
  // `options` outlives this.
  ChoicePieces(const PieceOptions& options, int32_t index, const PromptInfo& prompt);

  // The piece for a chunk; nothing where the chunk is held back.
  std::optional<Piece> Add(const v1::Chunk& chunk);
  Piece Finish(const v1::ChoiceFinish& finish);

  int32_t completion_tokens() const { return completion_tokens_; }
  int32_t reasoning_tokens() const { return reasoning_tokens_; }

 private:
  bool MayBeLast(const v1::Chunk& chunk) const;
  void Append(const v1::Chunk& chunk);
  void ReadText(std::string_view text);
  Piece Take();
  Json StopReason(const v1::ChoiceFinish& finish) const;

  const PieceOptions& options_;
  Piece next_;  // what is held back
  std::unique_ptr<TextStream> offsets_;
  size_t offset_;
  std::optional<AnswerReader> reader_;
  int32_t completion_tokens_ = 0;
  int32_t reasoning_tokens_ = 0;
  int32_t last_token_ = -1;
};

}  // namespace tandem::openai
