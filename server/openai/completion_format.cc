#include <utility>

#include "server/openai/answer_format.h"
#include "server/openai/finish_json.h"
#include "server/openai/http_answers.h"
#include "server/openai/logprobs_json.h"

namespace tandem::openai {
namespace {

class CompletionFormat final : public AnswerFormat {
 public:
  explicit CompletionFormat(const TokenTexts& texts) : texts_(texts) {}

  const AnswerStyle& style(const AnswerOptions&) const override { return kOpenAiStyle; }
  std::string_view id_prefix() const override { return "cmpl-"; }
  std::string_view object() const override { return "text_completion"; }
  std::string_view chunk_object() const override { return "text_completion"; }

  std::vector<Json> Deltas(const Piece& piece, const AnswerOptions& options) const override {
    return {Choice(piece, options)};
  }

  Json Choice(const Piece& piece, const AnswerOptions& options) const override {
    const bool echoes = options.echo && piece.first;
    Json choice;
    choice["index"] = piece.index;
    choice["text"] = echoes ? piece.prompt->text + piece.text : piece.text;
    choice["logprobs"] = nullptr;
    if (options.logprobs) {
      const TokenNames names = options.tokens_as_ids ? TokenNames::kIds : TokenNames::kTexts;
      choice["logprobs"] = CompletionLogprobs(piece, options.echo, texts_, names);
    }
    AddFinish(piece, choice);
    if (options.return_token_ids) {
      choice["token_ids"] = piece.token_ids;
      if (piece.first) choice["prompt_token_ids"] = piece.prompt->token_ids;
    }
    if (options.prompt_logprobs) choice["prompt_logprobs"] = PromptLogprobs(*piece.prompt, texts_);
    return choice;
  }

 private:
  const TokenTexts& texts_;
};

}  // namespace

std::unique_ptr<AnswerFormat> NewCompletionFormat(const TokenTexts& texts) {
  return std::make_unique<CompletionFormat>(texts);
}

}  // namespace tandem::openai
