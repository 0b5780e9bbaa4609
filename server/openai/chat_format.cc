#include <utility>

#include "server/openai/answer_format.h"
#include "server/openai/finish_json.h"
#include "server/openai/logprobs_json.h"

namespace tandem::openai {
namespace {

class ChatFormat final : public AnswerFormat {
 public:
  explicit ChatFormat(const TokenTexts& texts) : texts_(texts) {}

  std::string_view id_prefix() const override { return "chatcmpl-"; }
  std::string_view object() const override { return "chat.completion"; }
  std::string_view chunk_object() const override { return "chat.completion.chunk"; }

  // The role comes in an event of its own, but not before the first token: clients take the first
  // event for it.
  std::vector<Json> Deltas(const Piece& piece, const AnswerOptions& options) const override {
    std::vector<Json> deltas;
    if (piece.first) {
      Json role;
      role["role"] = "assistant";
      role["content"] = "";
      Json choice = Delta(piece.index, std::move(role));
      choice["finish_reason"] = nullptr;
      deltas.push_back(std::move(choice));
    }
    Json content = Json::object();
    if (!piece.text.empty() || !piece.finish) content["content"] = piece.text;
    Json choice = Delta(piece.index, std::move(content));
    if (options.logprobs && !piece.logprobs.empty()) choice["logprobs"] = Logprobs(piece, options);
    AddFinish(piece, choice);
    if (options.return_token_ids) choice["token_ids"] = piece.token_ids;
    deltas.push_back(std::move(choice));
    return deltas;
  }

  Json Choice(const Piece& piece, const AnswerOptions& options) const override {
    Json message;
    message["role"] = "assistant";
    message["content"] = piece.text;
    message["refusal"] = nullptr;
    Json choice;
    choice["index"] = piece.index;
    choice["message"] = std::move(message);
    choice["logprobs"] = options.logprobs ? Logprobs(piece, options) : Json(nullptr);
    AddFinish(piece, choice);
    if (options.return_token_ids) choice["token_ids"] = piece.token_ids;
    return choice;
  }

 private:
  static Json Delta(int32_t index, Json delta) {
    Json choice;
    choice["index"] = index;
    choice["delta"] = std::move(delta);
    choice["logprobs"] = nullptr;
    return choice;
  }

  Json Logprobs(const Piece& piece, const AnswerOptions& options) const {
    return ChatLogprobs(piece, texts_,
                        options.tokens_as_ids ? TokenNames::kIds : TokenNames::kTexts);
  }

  const TokenTexts& texts_;
};

}  // namespace

std::unique_ptr<AnswerFormat> NewChatFormat(const TokenTexts& texts) {
  return std::make_unique<ChatFormat>(texts);
}

}  // namespace tandem::openai
