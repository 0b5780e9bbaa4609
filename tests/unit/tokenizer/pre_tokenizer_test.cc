// Expected pieces are those of HuggingFace tokenizers 0.23.3 for the same settings.
#include "model/tokenizer/pre_tokenizer.h"

#include <string>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::pre_tokenizer_test {
namespace {

using Words = std::vector<std::string>;

Words Split(const std::string& json, std::string_view text, bool at_start = true) {
  const auto value = ParseJson(json);
  const auto pre_tokenizer = PreTokenizer::FromJson(&value, "pre_tokenizer");
  EXPECT_TRUE(pre_tokenizer.ok()) << pre_tokenizer.status();
  if (!pre_tokenizer.ok()) return {};
  TextArena arena;
  std::vector<Piece> pieces;
  const absl::Status status = pre_tokenizer->Run({text, at_start}, arena, pieces);
  EXPECT_TRUE(status.ok()) << status;
  Words words;
  for (const Piece& piece : pieces) words.emplace_back(piece.text);
  return words;
}

std::string SplitJson(const std::string& behavior, const std::string& invert) {
  return R"({"type": "Split", "pattern": {"String": "-"}, "behavior": ")" + behavior +
         R"(", "invert": )" + invert + "}";
}

TEST(PreTokenizer, SplitBehaviors) {
  const std::string text = "-a--b-";
  EXPECT_EQ(Split(SplitJson("Isolated", "false"), text), (Words{"-", "a", "-", "-", "b", "-"}));
  EXPECT_EQ(Split(SplitJson("Removed", "false"), text), (Words{"a", "b"}));
  EXPECT_EQ(Split(SplitJson("MergedWithPrevious", "false"), text), (Words{"-", "a-", "-", "b-"}));
  EXPECT_EQ(Split(SplitJson("MergedWithNext", "false"), text), (Words{"-a", "-", "-b", "-"}));
  EXPECT_EQ(Split(SplitJson("Contiguous", "false"), text), (Words{"-", "a", "--", "b", "-"}));
}

TEST(PreTokenizer, SplitInverted) {
  EXPECT_EQ(Split(SplitJson("Removed", "true"), "-a--b-"), (Words{"-", "-", "-", "-"}));
}

TEST(PreTokenizer, ByteLevelUsesThePatternOfGpt2) {
  EXPECT_EQ(Split(R"({"type": "ByteLevel", "add_prefix_space": false})", "Hi there's 42  x "),
            (Words{"Hi", " there", "'s", " 42", " ", " x", " "}));
  EXPECT_EQ(Split(R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": false})", "a b"),
            (Words{" a b"}));
}

TEST(PreTokenizer, MetaspaceSchemes) {
  const auto metaspace = [](const std::string& rest) {
    return R"({"type": "Metaspace", "replacement": "▁")" + rest + "}";
  };
  EXPECT_EQ(Split(metaspace(""), "a b"), (Words{"▁a", "▁b"}));
  EXPECT_EQ(Split(metaspace(R"(, "prepend_scheme": "first")"), "a b"), (Words{"▁a", "▁b"}));
  EXPECT_EQ(Split(metaspace(R"(, "prepend_scheme": "first")"), "a b", false), (Words{"a", "▁b"}));
  EXPECT_EQ(Split(metaspace(R"(, "prepend_scheme": "always")"), "a b", false), (Words{"▁a", "▁b"}));
  EXPECT_EQ(Split(metaspace(R"(, "prepend_scheme": "never")"), "a b"), (Words{"a", "▁b"}));
  EXPECT_EQ(Split(metaspace(R"(, "add_prefix_space": false)"), "a b"), (Words{"a", "▁b"}));
  EXPECT_EQ(Split(metaspace(R"(, "split": false)"), "a b"), (Words{"▁a▁b"}));
  EXPECT_EQ(Split(metaspace(""), " a"), (Words{"▁a"}));
  EXPECT_EQ(Split(metaspace(""), "a  b"), (Words{"▁a", "▁", "▁b"}));
}

TEST(PreTokenizer, CharacterClasses) {
  EXPECT_EQ(Split(R"({"type": "Digits", "individual_digits": true})", "a12½"),
            (Words{"a", "1", "2", "½"}));
  EXPECT_EQ(Split(R"({"type": "Digits", "individual_digits": false})", "a12½b"),
            (Words{"a", "12½", "b"}));
  EXPECT_EQ(Split(R"({"type": "Punctuation"})", "a,$b"), (Words{"a", ",", "$", "b"}));
  EXPECT_EQ(Split(R"({"type": "WhitespaceSplit"})", " a, \tb "), (Words{"a,", "b"}));
  EXPECT_EQ(Split(R"({"type": "Whitespace"})", "Hey you, 2!? "),
            (Words{"Hey", "you", ",", "2", "!?"}));
}

TEST(PreTokenizer, SequenceKeepsTrackOfTheStart) {
  const std::string json = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"String": "-"}, "behavior": "Removed", "invert": false},
      {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}]})";
  EXPECT_EQ(Split(json, "a-b"), (Words{"▁a", "b"}));
  EXPECT_EQ(Split(json, "-a-b"), (Words{"a", "b"}));
}

// As Falcon has them. They see a character for every byte: the second byte of a superscript two is
// one that counts as a digit.
TEST(PreTokenizer, StepsBehindByteLevelSeeItsCharacters) {
  const std::string json = R"({"type": "Sequence", "pretokenizers": [
      {"type": "Punctuation", "behavior": "Contiguous"},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
      {"type": "Digits", "individual_digits": false},
      {"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated",
       "invert": false}]})";
  EXPECT_EQ(Split(json, "pay 12345, now!! ²½ x"), (Words{"pay", " ", "123", "45", ",", " now", "!!",
                                                         " \xc2", "\xb2", "\xc2", "\xbd", " x"}));
  EXPECT_EQ(Split(json, "naïve 中 7"), (Words{"naïve", " 中", " ", "7"}));
}

TEST(PreTokenizer, WhatRewritesTextMustComeBeforeByteLevel) {
  for (const char* type : {"ByteLevel", "Metaspace"}) {
    const auto value =
        ParseJson(R"({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": ")" +
                  std::string(type) + R"("}]})");
    EXPECT_EQ(PreTokenizer::FromJson(&value, "pre_tokenizer").status().code(),
              absl::StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace tandem::pre_tokenizer_test
