#include "server/openai/logprobs_json.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "fmt/format.h"

namespace tandem::openai {
namespace {

double Written(float logprob) {
  return ShortestDouble(logprob > kLeastLogprob ? logprob : kLeastLogprob);
}

std::string NameOf(int32_t id, const TokenTexts& texts, TokenNames names) {
  return names == TokenNames::kIds ? TokenTexts::IdName(id) : texts.Of(id).text;
}

// Builds the four lists of a completion's "logprobs".
class Lists {
 public:
  Lists(const TokenTexts& texts, TokenNames names) : texts_(texts), names_(names) {}

  // Adds the first token of a prompt, which follows nothing and so has no log-probability.
  void AddFirst(int32_t id) { Add(id, 0, nullptr, nullptr); }
  void Add(const v1::TokenLogprobs& token, size_t offset) {
    Json top = Json::object();
    // Different tokens may have the same text, and then only the first of them counts, the most
    // probable one.
    for (const v1::TokenLogprob& one : token.top()) {
      top.emplace(NameOf(one.token_id(), texts_, names_), Written(one.logprob()));
    }
    const std::string name = NameOf(token.sampled().token_id(), texts_, names_);
    top.emplace(name, Written(token.sampled().logprob()));
    Add(token.sampled().token_id(), offset, Written(token.sampled().logprob()), std::move(top));
  }
  Json Take() {
    Json json;
    json["text_offset"] = std::move(offsets_);
    json["token_logprobs"] = std::move(logprobs_);
    json["tokens"] = std::move(tokens_);
    json["top_logprobs"] = std::move(top_);
    return json;
  }

 private:
  void Add(int32_t id, size_t offset, Json logprob, Json top) {
    offsets_.push_back(offset);
    logprobs_.push_back(std::move(logprob));
    tokens_.push_back(NameOf(id, texts_, names_));
    top_.push_back(std::move(top));
  }

  const TokenTexts& texts_;
  const TokenNames names_;
  Json offsets_ = Json::array();
  Json logprobs_ = Json::array();
  Json tokens_ = Json::array();
  Json top_ = Json::array();
};

void AddPrompt(const PromptInfo& prompt, const TokenTexts& texts, Lists& lists) {
  if (prompt.token_ids.empty()) return;
  std::unique_ptr<TextStream> stream;
  if (texts.tokenizer() != nullptr) stream = texts.tokenizer()->StartText(SkipSpecial::kYes);
  size_t offset = 0;
  const auto advance = [&](int32_t id) {
    if (stream != nullptr) offset += CountCharacters(stream->Push(id));
  };
  lists.AddFirst(prompt.token_ids.front());
  advance(prompt.token_ids.front());
  for (const v1::TokenLogprobs& token : prompt.logprobs) {
    lists.Add(token, offset);
    advance(token.sampled().token_id());
  }
}

Json ChatToken(const v1::TokenLogprob& token, const TokenTexts& texts, TokenNames names) {
  TokenTexts::Text text = texts.Of(token.token_id());
  Json json;
  json["token"] = names == TokenNames::kIds ? TokenTexts::IdName(token.token_id()) : text.text;
  json["logprob"] = Written(token.logprob());
  Json bytes = Json::array();
  for (const char c : text.bytes) bytes.push_back(static_cast<unsigned char>(c));
  json["bytes"] = std::move(bytes);
  return json;
}

}  // namespace

double ShortestDouble(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

Json CompletionLogprobs(const Piece& piece, bool echo, const TokenTexts& texts, TokenNames names) {
  Lists lists(texts, names);
  if (echo && piece.first) AddPrompt(*piece.prompt, texts, lists);
  for (size_t i = 0; i < piece.logprobs.size(); ++i) {
    lists.Add(piece.logprobs[i], i < piece.text_offsets.size() ? piece.text_offsets[i] : 0);
  }
  return lists.Take();
}

Json ChatLogprobs(const Piece& piece, const TokenTexts& texts, TokenNames names) {
  Json content = Json::array();
  for (const v1::TokenLogprobs& token : piece.logprobs) {
    Json entry = ChatToken(token.sampled(), texts, names);
    Json top = Json::array();
    for (const v1::TokenLogprob& one : token.top()) top.push_back(ChatToken(one, texts, names));
    entry["top_logprobs"] = std::move(top);
    content.push_back(std::move(entry));
  }
  Json json;
  json["content"] = std::move(content);
  return json;
}

Json PromptLogprobs(const PromptInfo& prompt, const TokenTexts& texts) {
  Json list = Json::array();
  list.push_back(nullptr);
  for (const v1::TokenLogprobs& token : prompt.logprobs) {
    Json entry = Json::object();
    const auto add = [&](const v1::TokenLogprob& one, Json rank) {
      Json value;
      value["logprob"] = Written(one.logprob());
      value["rank"] = std::move(rank);
      value["decoded_token"] = texts.Of(one.token_id()).text;
      entry.emplace(std::to_string(one.token_id()), std::move(value));
    };
    int rank = 0;
    for (const v1::TokenLogprob& one : token.top()) add(one, ++rank);
    add(token.sampled(), nullptr);  // no effect if it is one of the top tokens
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace tandem::openai
