#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"

namespace tandem {

using Json = nlohmann::json;

// A tokenizer.json whose tokens are `tokens`, with their index as id.
inline Json SmallTokenizer(const std::vector<std::string>& tokens,
                           const std::vector<std::string>& merges = {}) {
  Json vocab = Json::object();
  for (size_t i = 0; i < tokens.size(); ++i) vocab[tokens[i]] = i;
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"decoder", {{"type", "Fuse"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
}

// Of the token `content` of `json`, which need not have been one before.
inline Json AddedTokenJson(Json& json, const std::string& content) {
  const Json& vocab = json["model"]["vocab"];
  const size_t id = vocab.contains(content) ? vocab[content].get<size_t>()
                                            : vocab.size() + json["added_tokens"].size();
  return {{"id", id}, {"content", content}, {"normalized", false}, {"special", false}};
}

inline std::unique_ptr<Tokenizer> Parse(const Json& json) {
  auto tokenizer = ParseTokenizerJson(json.dump());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

// The tokens of `text`, as the decoder writes them one by one.
inline std::vector<std::string> Tokens(const Json& json, std::string_view text,
                                       const EncodeOptions& options = {}) {
  const std::unique_ptr<Tokenizer> tokenizer = Parse(json);
  if (tokenizer == nullptr) return {};
  const auto ids = tokenizer->Encode(text, options);
  EXPECT_TRUE(ids.ok()) << ids.status();
  std::vector<std::string> tokens;
  if (!ids.ok()) return tokens;
  for (const int32_t id : *ids) tokens.push_back(*tokenizer->Decode({id}, SkipSpecial::kNo));
  return tokens;
}

}  // namespace tandem
