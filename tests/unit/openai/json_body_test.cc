#include "server/openai/json_body.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::openai::json_body_test {
namespace {

using testing::HasSubstr;

std::string JsonErrorOf(std::string_view body) {
  const absl::StatusOr<Json> json = ParseJsonBody(body);
  EXPECT_EQ(json.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(json.status().message());
}

TEST(JsonBodyTest, FieldsKeepTheirOrder) {
  const absl::StatusOr<Json> json = ParseJsonBody(R"({"z":1,"a":[true,null,-2,1.5,"é"],"m":{}})");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(JsonText(*json), R"({"z":1,"a":[true,null,-2,1.5,"é"],"m":{}})");
}

TEST(JsonBodyTest, ASyntaxErrorHasAPlace) {
  EXPECT_THAT(JsonErrorOf("{\n  \"a\": 1,\n  \"b\" 2}"), HasSubstr("line 3, column 7"));
  EXPECT_THAT(JsonErrorOf("{\"a\":1} x"), HasSubstr("line 1, column 9"));
  EXPECT_THAT(JsonErrorOf("{\"a\":tru}"), HasSubstr("syntax error at line 1"));
  EXPECT_THAT(JsonErrorOf("{\"a\":\"\xff\"}"), HasSubstr("syntax error at line 1"));
}

TEST(JsonBodyTest, NoBodyIsSaidToBeNone) {
  EXPECT_EQ(ParseJsonBody("").status().message(), "the body is empty: it must be a JSON object");
}

TEST(JsonBodyTest, ANumberThatIsTooLargeHasAPlace) {
  EXPECT_THAT(JsonErrorOf("{\"a\":1e999}"), HasSubstr("too large at line 1"));
}

TEST(JsonBodyTest, AFieldThatComesTwiceIsRefused) {
  EXPECT_THAT(JsonErrorOf(R"({"a":1,"b":{"c":1,"c":2}})"), HasSubstr("field \"c\" twice"));
  EXPECT_TRUE(ParseJsonBody(R"([{"a":1},{"a":2}])").ok());
}

TEST(JsonBodyTest, DepthIsBounded) {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_TRUE(ParseJsonBody(nested(kMaxJsonDepth)).ok());
  EXPECT_THAT(JsonErrorOf(nested(kMaxJsonDepth + 1)), HasSubstr("more than 64 deep"));
  EXPECT_THAT(JsonErrorOf(std::string(1 << 20, '[')), HasSubstr("more than 64 deep"));
}

TEST(JsonBodyTest, ArraysAndObjectsAreCounted) {
  const auto lists = [](size_t count) {
    std::string body = "[";
    for (size_t i = 0; i + 1 < count; ++i) body += i % 2 == 0 ? "[]," : "{},";
    return body + "0]";
  };
  EXPECT_TRUE(ParseJsonBody(lists(kMaxJsonContainers)).ok());
  EXPECT_THAT(JsonErrorOf(lists(kMaxJsonContainers + 1)), HasSubstr("more than 100000 arrays"));
}

TEST(JsonBodyTest, ManyFieldsTakeTimeInProportion) {
  std::string body = "{";
  for (int i = 0; i < 200000; ++i) body += "\"f" + std::to_string(i) + "\":0,";
  body.back() = '}';
  const absl::StatusOr<Json> json = ParseJsonBody(body);
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->size(), 200000u);
}

}  // namespace
}  // namespace tandem::openai::json_body_test
