#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/openai/answer_format.h"
#include "server/openai/answer_options.h"
#include "server/openai/answer_writer.h"
#include "server/openai/choice_pieces.h"

namespace tandem::openai {

// The fields with which all events of an answer begin.
struct AnswerHead {
  std::string id;       // without the prefix of the API
  int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;  // "system_fingerprint"
};

// An answer in an API with choices. Choice i of prompt p has the index p * n + i. `format` outlives
// it.
class Answer final : public AnswerWriter {
 public:
  Answer(AnswerHead head, const AnswerOptions& options, const AnswerFormat& format);

  // Adds the next prompt, which has `n` choices. All prompts must be added before the first event.
  void AddPrompt(PromptInfo info, PieceOptions pieces, int32_t n);

  const AnswerStyle& style() const override { return format_.style(options_); }
  bool streams() const override { return options_.stream; }
  std::string Begin() override { return ""; }
  std::string Add(size_t prompt, const v1::GenerateResponse& event) override;
  std::string Finish() override;
  std::string StreamError(const absl::Status& status) override;
  const std::optional<v1::ChoiceFinish>& first_finish() const override { return first_finish_; }

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
  std::string EventBegin() const;
  Json UsageJson(int64_t prompt_tokens, int64_t completion_tokens) const;

  const AnswerHead head_;
  const AnswerOptions options_;
  const AnswerFormat& format_;
  const std::string event_begin_;  // the text of all events of a stream, up to their choice
  std::deque<Prompt> prompts_;     // a deque, because pieces point to its elements
  std::vector<Piece> whole_;       // the choices of an answer that is sent whole
  std::optional<v1::ChoiceFinish> first_finish_;
  std::vector<Json> timing_;
  int64_t prompt_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  std::optional<int64_t> reasoning_tokens_;  // where texts are searched for reasoning, else nothing
  int32_t num_choices_ = 0;
};

}  // namespace tandem::openai
