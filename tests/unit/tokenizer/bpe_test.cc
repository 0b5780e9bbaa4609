#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::bpe_test {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

Bpe::Vocabulary MakeVocabulary(const std::vector<std::string>& tokens, Merges merges = {}) {
  Bpe::Vocabulary vocabulary;
  for (const std::string& token : tokens) {
    vocabulary.tokens.emplace_back(token, static_cast<int32_t>(vocabulary.tokens.size()));
  }
  vocabulary.merges = std::move(merges);
  return vocabulary;
}

std::vector<std::string> Encode(const Bpe& bpe, std::string_view word) {
  Bpe::Scratch scratch;
  std::vector<int32_t> ids;
  bpe.Encode(word, scratch, ids);
  std::vector<std::string> tokens;
  for (const int32_t id : ids) tokens.push_back(bpe.tokens()[static_cast<size_t>(id)].first);
  return tokens;
}

std::unique_ptr<const Bpe> Create(Bpe::Vocabulary vocabulary, Bpe::Options options = {}) {
  auto bpe = Bpe::Create(std::move(vocabulary), std::move(options));
  EXPECT_TRUE(bpe.ok()) << bpe.status();
  return *std::move(bpe);
}

using Tokens = std::vector<std::string>;

TEST(Bpe, MergesByRankThenFromTheLeft) {
  const auto bpe = Create(
      MakeVocabulary({"a", "b", "c", "bc", "ab", "aa"}, {{"b", "c"}, {"a", "b"}, {"a", "a"}}));
  EXPECT_EQ(Encode(*bpe, "abc"), (Tokens{"a", "bc"}));
  EXPECT_EQ(Encode(*bpe, "abab"), (Tokens{"ab", "ab"}));
  EXPECT_EQ(Encode(*bpe, "aaa"), (Tokens{"aa", "a"}));
}

TEST(Bpe, IgnoreMergesFindsWholeWords) {
  const Bpe::Vocabulary vocabulary = MakeVocabulary({"a", "b", "ab"});
  EXPECT_EQ(Encode(*Create(vocabulary), "ab"), (Tokens{"a", "b"}));
  EXPECT_EQ(Encode(*Create(vocabulary, {.ignore_merges = true}), "ab"), Tokens{"ab"});
}

TEST(Bpe, UnknownCharacters) {
  const Bpe::Vocabulary vocabulary = MakeVocabulary({"a", "<unk>"});
  EXPECT_EQ(Encode(*Create(vocabulary), "axya"), (Tokens{"a", "a"}));
  EXPECT_EQ(Encode(*Create(vocabulary, {.unk_token = "<unk>"}), "axya"),
            (Tokens{"a", "<unk>", "<unk>", "a"}));
  EXPECT_EQ(Encode(*Create(vocabulary, {.fuse_unk = true, .unk_token = "<unk>"}), "axya"),
            (Tokens{"a", "<unk>", "a"}));
}

TEST(Bpe, FallsBackToBytesWhenAllAreThere) {
  const auto bpe = Create(MakeVocabulary({"a", "<unk>", "<0xC3>", "<0xA9>"}),
                          {.byte_fallback = true, .unk_token = "<unk>"});
  EXPECT_EQ(Encode(*bpe, "aé"), (Tokens{"a", "<0xC3>", "<0xA9>"}));
  EXPECT_EQ(Encode(*bpe, "aè"), (Tokens{"a", "<unk>"}));
}

TEST(Bpe, ByteLevelCharactersAreOneToOne) {
  std::set<std::string> distinct(ByteLevelCharacters().begin(), ByteLevelCharacters().end());
  EXPECT_EQ(distinct.size(), 256U);
  EXPECT_EQ(ByteLevelCharacters()[' '], "\u0120");
  EXPECT_EQ(ByteLevelCharacters()['\n'], "\u010A");
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(ByteLevelBytes(ByteLevelCharacters()[byte]), std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(ByteLevelBytes("日"), std::nullopt);
}

// The definition, in quadratic time.
Tokens NaiveEncode(const Merges& merges, std::string_view word) {
  Tokens symbols;
  for (const char c : word) symbols.emplace_back(1, c);
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (size_t i = 0; i < merges.size(); ++i) ranks[merges[i]] = i;
  while (true) {
    size_t best = merges.size();
    size_t at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      at = i;
    }
    if (best == merges.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, EqualsTheDefinitionOnRandomVocabularies) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    Tokens tokens = {"a", "b", "c"};
    Merges merges;
    for (int i = 0; i < 12; ++i) {
      const std::string left = tokens[random() % tokens.size()];
      const std::string right = tokens[random() % tokens.size()];
      if (std::find(tokens.begin(), tokens.end(), left + right) != tokens.end()) continue;
      tokens.push_back(left + right);
      merges.emplace_back(left, right);
    }
    const auto bpe = Create(MakeVocabulary(tokens, merges));
    for (int i = 0; i < 20; ++i) {
      std::string word;
      for (size_t length = random() % 40; word.size() < length;) word += "abc"[random() % 3];
      ASSERT_EQ(Encode(*bpe, word), NaiveEncode(merges, word)) << "round " << round << ": " << word;
    }
  }
}

// With quadratic time this would take hours.
TEST(Bpe, AWordOfAMillionCharacters) {
  const auto bpe = Create(MakeVocabulary({"a", "aa", "aaaa"}, {{"a", "a"}, {"aa", "aa"}}));
  Bpe::Scratch scratch;
  std::vector<int32_t> ids;
  bpe->Encode(std::string(1'000'000, 'a'), scratch, ids);
  EXPECT_EQ(ids, std::vector<int32_t>(250'000, 2));
}

TEST(Bpe, TextWithSpaceMarksIsMergedAcrossThemOnlyWhereAMergeSaysSo) {
  const Tokens tokens = {"▁", "a", "b", "▁a", "a▁", "▁▁"};
  const auto prefix = Create(MakeVocabulary(tokens, {{"▁", "a"}, {"▁", "▁"}}));
  EXPECT_EQ(Encode(*prefix, "▁a▁ab▁▁a"), (Tokens{"▁a", "▁a", "b", "▁", "▁a"}));
  const auto suffix = Create(MakeVocabulary(tokens, {{"a", "▁"}, {"▁", "▁"}}));
  EXPECT_EQ(Encode(*suffix, "▁a▁▁b"), (Tokens{"▁", "a▁", "▁", "b"}));
}

}  // namespace
}  // namespace tandem::bpe_test
