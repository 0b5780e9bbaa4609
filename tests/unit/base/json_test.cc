#include "base/json.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace tandem::json_test {
namespace {

using Kind = JsonFault::Kind;

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonTest, TextThatIsNotOneValueIsDiscarded) {
  for (const std::string_view text :
       {"", "{", "1 2", "nul", "[1,]", "{\"a\" 1}", "\"\xff\"", "NaN"}) {
    EXPECT_TRUE(ParseJson(text).is_discarded()) << text;
    EXPECT_FALSE(IsJson(text)) << text;
    EXPECT_TRUE(ParseOrderedJson(text).fault.has_value()) << text;
  }
  EXPECT_TRUE(IsJson(R"({"b": [1, -2.5, true, null]})"));
}

TEST(JsonTest, FieldsAreSortedOrKeepTheirOrder) {
  constexpr std::string_view kText = R"({"b": 1, "a": {"d": "é", "c": []}})";
  EXPECT_EQ(JsonText(ParseJson(kText)), R"({"a":{"c":[],"d":"é"},"b":1})");
  EXPECT_EQ(JsonText(ParseOrderedJson(kText).value), R"({"b":1,"a":{"d":"é","c":[]}})");
  EXPECT_EQ(JsonText(ParseOrderedJson(R"({"b":[1],"a":2})").value, 1),
            "{\n \"b\": [\n  1\n ],\n \"a\": 2\n}");
}

TEST(JsonTest, IllFormedUtf8IsReplaced) {
  EXPECT_EQ(JsonString("a\"\n\xff"), "\"a\\\"\\n\xef\xbf\xbd\"");
  EXPECT_EQ(JsonText(nlohmann::json("\xc3")), "\"\xef\xbf\xbd\"");
}

TEST(JsonTest, DepthIsBoundedByDefault) {
  EXPECT_FALSE(ParseOrderedJson(Nested(64)).fault.has_value());
  const ParsedJson deep = ParseOrderedJson(Nested(65));
  ASSERT_TRUE(deep.fault.has_value());
  EXPECT_EQ(deep.fault->kind, Kind::kTooDeep);
  EXPECT_TRUE(deep.value.is_null());
}

TEST(JsonTest, ContainersAreCounted) {
  constexpr std::string_view kThree = "[[], {}]";
  EXPECT_FALSE(ParseOrderedJson(kThree, {.containers = 3}).fault.has_value());
  const ParsedJson more = ParseOrderedJson(kThree, {.containers = 2});
  ASSERT_TRUE(more.fault.has_value());
  EXPECT_EQ(more.fault->kind, Kind::kTooManyContainers);
}

TEST(JsonTest, TheLastOfRepeatedFieldsCountsOrIsRefused) {
  constexpr std::string_view kTwice = R"({"a": 1, "b": 2, "a": 3})";
  EXPECT_EQ(JsonText(ParseOrderedJson(kTwice).value), R"({"a":3,"b":2})");
  const ParsedJson refused = ParseOrderedJson(kTwice, {.repeated = RepeatedFields::kRefused});
  ASSERT_TRUE(refused.fault.has_value());
  EXPECT_EQ(refused.fault->kind, Kind::kRepeatedField);
  EXPECT_EQ(refused.fault->field, "a");
}

TEST(JsonTest, AFaultHasItsPlace) {
  const ParsedJson syntax = ParseOrderedJson(R"({"a": x})");
  ASSERT_TRUE(syntax.fault.has_value());
  EXPECT_EQ(syntax.fault->kind, Kind::kSyntax);
  EXPECT_EQ(syntax.fault->position, 6u);
  const ParsedJson number = ParseOrderedJson("[1e999]");
  ASSERT_TRUE(number.fault.has_value());
  EXPECT_EQ(number.fault->kind, Kind::kNumberTooLarge);
}

}  // namespace
}  // namespace tandem::json_test
