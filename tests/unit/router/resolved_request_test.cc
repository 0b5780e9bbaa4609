// What a request leaves open and the router decides: the SLO, the number of choices, the most tokens,
// the sampling and the stop tokens.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/request/request_validation.h"
#include "tests/unit/router/bad_request_cases.h"

namespace tandem::resolved_request_test {
namespace {

using bad_request_cases::Good;
using bad_request_cases::kInvalid;
using bad_request_cases::Limits;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ResolveSloTest, TheRoutersSlosAreThoseThatTheClientDidNotGive) {
  RequestLimits limits = Limits();
  v1::GenerateRequest request = Good();
  EXPECT_FALSE(ResolveSlo(request, limits).ttft.has_value());
  limits.default_slo = {.ttft = ModelTime(500), .tpot = ModelTime(40)};
  request.set_tpot_slo_ms(12.5);
  const Slo slo = ResolveSlo(request, limits);
  EXPECT_EQ(slo.ttft, ModelTime(500));
  EXPECT_EQ(slo.tpot, ModelTime(12.5));
}

TEST(ResolveChoicesTest, BestOfElseNElseOne) {
  v1::GenerateRequest request = Good();
  EXPECT_EQ(ResolveChoices(request), 1);
  request.set_n(3);
  EXPECT_EQ(ResolveChoices(request), 3);
  request.set_best_of(5);
  EXPECT_EQ(ResolveChoices(request), 5);
}

TEST(ResolveMaxTokensTest, DefaultIsAtLeastMinTokens) {
  RequestLimits limits = Limits();
  limits.default_max_tokens = 8;
  v1::GenerateRequest request = Good();
  request.mutable_sampling()->set_min_tokens(20);
  EXPECT_EQ(*ResolveMaxTokens(request, 10, limits), 20);
  EXPECT_EQ(ResolveMaxTokens(request, 60, limits).status().message(),
            "min_tokens=20 must be at most max_tokens=4");
}

TEST(ResolveMaxTokensTest, DefaultIsCutToTheContext) {
  EXPECT_EQ(*ResolveMaxTokens(Good(), 10, Limits()), 54);
  RequestLimits large = Limits();
  large.max_context_tokens = 10000;
  EXPECT_EQ(*ResolveMaxTokens(Good(), 10, large), 256);
}

TEST(ResolveMaxTokensTest, PromptOverTheContextIsRefusedWithTheNumbers) {
  const auto full = ResolveMaxTokens(Good(), 64, Limits());
  EXPECT_EQ(full.status().code(), kInvalid);
  EXPECT_THAT(std::string(full.status().message()), HasSubstr("prompt has 64 tokens"));
  v1::GenerateRequest request = Good();
  request.set_max_tokens(5);
  EXPECT_EQ(*ResolveMaxTokens(request, 59, Limits()), 5);
  EXPECT_EQ(ResolveMaxTokens(request, 60, Limits()).status().code(), kInvalid);
}

TEST(ResolveSamplingTest, FillsDefaultsAndKeepsWhatWasGiven) {
  v1::SamplingParams params;
  params.set_temperature(0);
  const v1::SamplingParams resolved = ResolveSampling(params, 42);
  EXPECT_EQ(resolved.temperature(), 0);
  EXPECT_EQ(resolved.top_p(), 1);
  EXPECT_EQ(resolved.repetition_penalty(), 1);
  EXPECT_EQ(resolved.seed(), 42u);
  EXPECT_FALSE(resolved.has_logprobs());
}

TEST(ResolveStopTokensTest, EosCountsUnlessIgnored) {
  v1::GenerateRequest request = Good();
  request.add_stop_token_ids(50);
  request.add_stop_token_ids(7);
  EXPECT_THAT(ResolveStopTokens(request, Limits()), ElementsAre(7, 50, 99));
  request.set_ignore_eos(true);
  EXPECT_THAT(ResolveStopTokens(request, Limits()), ElementsAre(7, 50));
}

}  // namespace
}  // namespace tandem::resolved_request_test
