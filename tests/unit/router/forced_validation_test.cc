// Which requests whose output is given by the client (forced_token_ids) are valid.

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/request/request_validation.h"
#include "tests/unit/router/bad_request_cases.h"

namespace tandem::forced_validation_test {
namespace {

using bad_request_cases::BadCase;
using bad_request_cases::Beams;
using bad_request_cases::Good;
using bad_request_cases::kInvalid;
using bad_request_cases::Limits;
using bad_request_cases::Sampling;
using ::testing::HasSubstr;
using R = v1::GenerateRequest;

v1::GenerateRequest GoodForced() {
  v1::GenerateRequest request = Good();
  for (const int32_t id : {5, 7, 99}) request.add_forced_token_ids(id);  // two of them are EOS
  return request;
}

TEST(ValidateRequestTest, TakesAForcedOutputWhichEndsWithItsLastToken) {
  v1::GenerateRequest request = GoodForced();
  request.add_stop_token_ids(5);
  request.mutable_sampling()->set_logprobs(20);
  EXPECT_TRUE(ValidateRequest(request, Limits()).ok()) << ValidateRequest(request, Limits());
  EXPECT_THAT(ResolveStopTokens(request, Limits()), testing::IsEmpty());
  EXPECT_EQ(*ResolveMaxTokens(request, 61, Limits()), 3);
  EXPECT_EQ(
      ResolveMaxTokens(request, 62, Limits()).status().message(),
      "forced_token_ids of 3 with a prompt of 62 tokens exceed the context of 64: at most 2 are "
      "left");
  request.set_max_tokens(3);
  EXPECT_TRUE(ValidateRequest(request, Limits()).ok()) << ValidateRequest(request, Limits());
}

class BadForcedTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadForcedTest, IsRefusedByFieldAndValue) {
  v1::GenerateRequest request = GoodForced();
  GetParam().spoil(request);
  const absl::Status status = ValidateRequest(request, Limits());
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().says));
  EXPECT_THAT(std::string(status.message()), HasSubstr("forced_token_ids"));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadForcedTest,
    testing::Values(
        BadCase{"Outside", [](R& r) { r.set_forced_token_ids(1, 100); }, kInvalid,
                "forced_token_ids[1]=100 must be in [0, 100)"},
        BadCase{"Negative", [](R& r) { r.set_forced_token_ids(0, -1); }, kInvalid,
                "forced_token_ids[0]=-1"},
        BadCase{"MoreThanTheContext",
                [](R& r) {
                  for (int i = 3; i < 64; ++i) r.add_forced_token_ids(1);
                },
                kInvalid, "forced_token_ids has 64 ids; the context of 64 holds fewer"},
        BadCase{"MaxTokens", [](R& r) { r.set_max_tokens(4); }, kInvalid,
                "max_tokens=4 contradicts forced_token_ids, which are 3"},
        BadCase{"N", [](R& r) { r.set_n(2); }, kInvalid, "do not go with 2 choices"},
        BadCase{"BestOf", [](R& r) { r.set_best_of(3); }, kInvalid, "do not go with 3 choices"},
        BadCase{"Beams", [](R& r) { Beams(r).set_beam_width(4); }, kInvalid, "do not go with 4"},
        BadCase{"StopString", [](R& r) { r.add_stop("x"); }, kInvalid, "stop has 1 strings"},
        BadCase{"BadWord", [](R& r) { r.add_bad_words("x"); }, kInvalid, "bad_words has 1 words"},
        BadCase{"Bias", [](R& r) { (*Sampling(r).mutable_logit_bias())[3] = 1; }, kInvalid,
                "logit_bias of 1 tokens does not go"},
        BadCase{"Allowed", [](R& r) { Sampling(r).add_allowed_token_ids(3); }, kInvalid,
                "allowed_token_ids of 1 tokens does not go"},
        BadCase{"MinTokens", [](R& r) { Sampling(r).set_min_tokens(3); }, kInvalid,
                "min_tokens=3 does not go"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::forced_validation_test
