#include "server/openai/body_fields.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/api_error.h"

namespace tandem::openai::body_fields_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class BodyFieldsTest : public testing::Test {
 protected:
  BodyFields Of(std::string_view text) {
    json_ = *ParseJsonBody(text);
    return *BodyFields::Of(json_, "");
  }
  Json json_;
};

TEST_F(BodyFieldsTest, MissingAndNullFieldsLeaveTheValue) {
  const BodyFields body = Of(R"({"a":null})");
  int32_t number = 7;
  std::optional<int32_t> optional;
  EXPECT_TRUE(body.Read("a", number).ok());
  EXPECT_TRUE(body.Read("b", number).ok());
  EXPECT_TRUE(body.Read("a", optional).ok());
  EXPECT_EQ(number, 7);
  EXPECT_FALSE(optional.has_value());
}

TEST_F(BodyFieldsTest, AWrongTypeNamesTheFieldAndBothTypes) {
  const BodyFields body = Of(R"({"temperature":"hot","stop":[1],"ids":[1,"x"]})");
  float number = 0;
  const absl::Status status = body.Read("temperature", number);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("temperature must be a number; it is a string"));
  EXPECT_EQ(ToApiError(status).param, "temperature");
  std::vector<std::string> texts;
  EXPECT_THAT(std::string(body.Read("stop", texts).message()),
              HasSubstr("stop[0] must be a string; it is a number"));
  std::vector<int32_t> ids;
  EXPECT_THAT(std::string(body.Read("ids", ids).message()),
              HasSubstr("ids[1] must be an integer; it is a string"));
}

TEST_F(BodyFieldsTest, IntegersMayBeWrittenWithAPointButNotRounded) {
  const BodyFields body = Of(R"({"a":5.0,"b":5.5,"c":3000000000,"d":18446744073709551615})");
  int32_t number = 0;
  EXPECT_TRUE(body.Read("a", number).ok());
  EXPECT_EQ(number, 5);
  EXPECT_FALSE(body.Read("b", number).ok());
  EXPECT_FALSE(body.Read("c", number).ok());
  int64_t wide = 0;
  EXPECT_TRUE(body.Read("c", wide).ok());
  EXPECT_FALSE(body.Read("d", wide).ok());
}

TEST_F(BodyFieldsTest, AStopMayBeOneTextOrSeveral) {
  const BodyFields body = Of(R"({"a":"x","b":["x","y"]})");
  std::vector<std::string> texts;
  EXPECT_TRUE(body.Read("a", texts).ok());
  EXPECT_THAT(texts, ElementsAre("x"));
  EXPECT_TRUE(body.Read("b", texts).ok());
  EXPECT_THAT(texts, ElementsAre("x", "y"));
}

TEST(ApiErrorTest, StatusesBecomeThoseOfHttp) {
  EXPECT_EQ(ToApiError(InvalidArgument("x")).http_status, 400);
  EXPECT_EQ(ToApiError(NotFound("model=x is not served here")).http_status, 404);
  EXPECT_EQ(ToApiError(NotFound("model=x is not served here")).code, "model_not_found");
  EXPECT_EQ(ToApiError(ResourceExhausted("x")).http_status, 429);
  EXPECT_EQ(ToApiError(Unavailable("x")).http_status, 503);
  EXPECT_EQ(ToApiError(Internal("x")).http_status, 500);
  EXPECT_TRUE(ToApiError(ResourceExhausted("x")).retry_after.has_value());
  EXPECT_TRUE(ToApiError(Unavailable("x")).retry_after.has_value());
  EXPECT_FALSE(ToApiError(InvalidArgument("x")).retriable);
}

TEST(ApiErrorTest, TheRoutersMessagesNameTheirField) {
  EXPECT_EQ(ToApiError(InvalidArgument("max_tokens=0 must be at least 1")).param, "max_tokens");
  EXPECT_EQ(ToApiError(InvalidArgument("stop[2] is empty")).param, "stop");
  EXPECT_EQ(ToApiError(InvalidArgument("token_ids[1]=-4 must be")).param, "prompt");
  EXPECT_EQ(ToApiError(InvalidArgument("something else")).param, "");
  EXPECT_EQ(
      JsonText(ErrorJson(ToApiError(InvalidArgument("n=0 must")))),
      R"({"error":{"message":"n=0 must","type":"invalid_request_error","param":"n","code":null}})");
}

}  // namespace
}  // namespace tandem::openai::body_fields_test
