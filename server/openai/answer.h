#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/openai/answer_format.h"
#include "server/openai/answer_options.h"
#include "server/openai/choice_pieces.h"

namespace tandem::openai {

// What all events of an answer begin with.
struct AnswerHead {
  std::string id;       // without its prefix
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;  // "system_fingerprint"
};

// Puts the answer to one HTTP request together from what the router sends for its prompts. Choice i
// of prompt p has the index p * n + i. Not thread-safe. `format` outlives it.
class Answer {
 public:
  Answer(AnswerHead head, const AnswerOptions& options, const AnswerFormat& format);

  // The next prompt, which has `n` choices; all prompts come before all events.
  void AddPrompt(PromptInfo info, PieceOptions pieces, int32_t n);

  // Takes an event of that prompt. Returns what a stream sends now, which may be nothing.
  std::string Add(size_t prompt, const v1::GenerateResponse& event);
  // The end of a stream, or the whole answer. Every prompt must have its summary.
  std::string Finish();
  // The end of a stream that an error ends after its status was sent.
  static std::string StreamError(const absl::Status& status);

  const AnswerOptions& options() const { return options_; }
  // Where the first choice that ended was computed; nothing before.
  const std::optional<v1::ChoiceFinish>& first_finish() const { return first_finish_; }

 private:
  struct Prompt {
    PromptInfo info;
    PieceOptions pieces;
    int32_t first_index;
    std::vector<ChoicePieces> choices;
  };

  std::string AddChunk(Prompt& prompt, const v1::Chunk& chunk);
  std::string AddFinish(Prompt& prompt, const v1::ChoiceFinish& finish);
  void AddSummary(const v1::Summary& summary);
  std::string Take(const Prompt& prompt, const ChoicePieces& choice, Piece piece);
  void Keep(Piece piece);
  Json Head(std::string_view object) const;
  Json UsageJson(int64_t prompt_tokens, int64_t completion_tokens) const;

  const AnswerHead head_;
  const AnswerOptions options_;
  const AnswerFormat& format_;
  std::deque<Prompt> prompts_;  // their addresses last, because pieces point to them
  std::vector<Piece> whole_;    // choices of an answer that is sent whole, as they came
  std::optional<v1::ChoiceFinish> first_finish_;
  std::vector<Json> timing_;
  int64_t prompt_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int32_t num_choices_ = 0;
};

}  // namespace tandem::openai
