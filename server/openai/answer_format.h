#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "server/openai/answer_options.h"
#include "server/openai/answer_writer.h"
#include "server/openai/piece.h"
#include "server/openai/token_texts.h"

namespace tandem::openai {

// How one of OpenAI's APIs writes choices. Immutable and thread-safe.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The style of the API. Errors name fields as the client named them.
  virtual const AnswerStyle& style(const AnswerOptions& options) const = 0;
  virtual std::string_view id_prefix() const = 0;     // "cmpl-"
  virtual std::string_view object() const = 0;        // of a whole answer: "text_completion"
  virtual std::string_view chunk_object() const = 0;  // the type of an event of a stream
  // The elements of "choices" for a piece of a stream; each is sent in an event of its own.
  virtual std::vector<Json> Deltas(const Piece& piece, const AnswerOptions& options) const = 0;
  // The element of "choices" for a choice that is complete.
  virtual Json Choice(const Piece& piece, const AnswerOptions& options) const = 0;
};

// Makes the formats of completions and chat completions. `texts` outlives the format.
std::unique_ptr<AnswerFormat> NewCompletionFormat(const TokenTexts& texts);
std::unique_ptr<AnswerFormat> NewChatFormat(const TokenTexts& texts);

}  // namespace tandem::openai
