#include "model/tokenizer/normalizer.h"

#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem::normalizer_test {
namespace {

std::string Normalize(const std::string& json, std::string_view text) {
  const auto value = ParseJson(json);
  const auto normalizer = Normalizer::FromJson(&value, "normalizer");
  EXPECT_TRUE(normalizer.ok()) << normalizer.status();
  if (!normalizer.ok()) return "";
  const auto result = normalizer->Apply(text);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->text : "";
}

TEST(Normalizer, NormalForms) {
  EXPECT_EQ(Normalize(R"({"type": "NFC"})", "e\u0301ﬁ"), "\u00E9ﬁ");
  EXPECT_EQ(Normalize(R"({"type": "NFD"})", "\u00E9ﬁ"), "e\u0301ﬁ");
  EXPECT_EQ(Normalize(R"({"type": "NFKC"})", "e\u0301ﬁ"), "\u00E9fi");
  EXPECT_EQ(Normalize(R"({"type": "NFKD"})", "\u00E9ﬁ"), "e\u0301fi");
}

TEST(Normalizer, CharactersYoungerThanTheTablesOfTheReferenceStayAsTheyAre) {
  // U+11938 decomposes since Unicode 13; U+08D3 has been a mark since Unicode 11.
  EXPECT_EQ(Normalize(R"({"type": "NFD"})", "\U00011938"), "\U00011938");
  EXPECT_EQ(Normalize(R"({"type": "NFD"})", "a\u0345\u08D3"), "a\u0345\u08D3");
}

TEST(Normalizer, LowercaseTakesEachCharacterByItself) {
  EXPECT_EQ(Normalize(R"({"type": "Lowercase"})", "AÉΑΣ\u0130"), "aéασi\u0307");
}

TEST(Normalizer, PrependReplaceStrip) {
  EXPECT_EQ(Normalize(R"({"type": "Prepend", "prepend": "▁"})", "a"), "▁a");
  EXPECT_EQ(Normalize(R"({"type": "Prepend", "prepend": "▁"})", ""), "");
  EXPECT_EQ(
      Normalize(R"({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})", " a  b"),
      "▁a▁▁b");
  EXPECT_EQ(
      Normalize(R"({"type": "Replace", "pattern": {"Regex": "\\s+"}, "content": ""})", " a b"),
      "ab");
  EXPECT_EQ(Normalize(R"({"type": "Strip", "strip_left": true, "strip_right": false})", "\u3000a "),
            "a ");
  EXPECT_EQ(Normalize(R"({"type": "Strip", "strip_left": false, "strip_right": true})", " a\n"),
            " a");
}

TEST(Normalizer, SequenceRunsInOrder) {
  EXPECT_EQ(Normalize(R"({"type": "Sequence", "normalizers": [
                {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
                {"type": "Replace", "pattern": {"String": "b"}, "content": "c"}]})",
                      "ab"),
            "cc");
}

TEST(Normalizer, ATextThatExplodesIsRefused) {
  nlohmann::json json = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}};
  json["content"] = std::string(1 << 20, 'x');
  const auto normalizer = Normalizer::FromJson(&json, "normalizer");
  ASSERT_TRUE(normalizer.ok());
  EXPECT_EQ(normalizer->Apply(std::string(1000, 'a')).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem::normalizer_test
