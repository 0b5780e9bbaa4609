#include "router/request_validation.h"

#include <cmath>
#include <functional>
#include <limits>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

RequestLimits Limits() {
  RequestLimits limits;
  limits.model = "sample";
  limits.vocab_size = 100;
  limits.max_context_tokens = 64;
  limits.eos_token_ids = {99, 7};
  limits.has_tokenizer = true;
  return limits;
}

v1::GenerateRequest Good() {
  v1::GenerateRequest request;
  request.set_text("hello");
  return request;
}

TEST(ValidateRequestTest, TakesTheSimplestRequest) {
  EXPECT_TRUE(ValidateRequest(Good(), Limits()).ok());
}

struct BadCase {
  const char* name;
  std::function<void(v1::GenerateRequest&)> spoil;
  absl::StatusCode code;
  const char* says;
};

class BadRequestTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadRequestTest, IsRefusedByFieldAndValue) {
  v1::GenerateRequest request = Good();
  GetParam().spoil(request);
  const absl::Status status = ValidateRequest(request, Limits());
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().says));
}

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
using R = v1::GenerateRequest;

INSTANTIATE_TEST_SUITE_P(
    All, BadRequestTest,
    testing::Values(
        BadCase{"NoPrompt", [](R& r) { r.clear_text(); }, kInvalid, "prompt is missing"},
        BadCase{"EmptyText", [](R& r) { r.set_text(""); }, kInvalid, "text is empty"},
        BadCase{"TextNotUtf8", [](R& r) { r.set_text("ab\xff"); }, kInvalid,
                "text is not UTF-8: byte 2 (0xff)"},
        BadCase{"NoIds", [](R& r) { r.mutable_token_ids(); }, kInvalid, "token_ids is empty"},
        BadCase{"IdTooLarge",
                [](R& r) {
                  r.mutable_token_ids()->add_ids(3);
                  r.mutable_token_ids()->add_ids(100);
                },
                kInvalid, "token_ids[1]=100 must be in [0, 100)"},
        BadCase{"IdNegative", [](R& r) { r.mutable_token_ids()->add_ids(-1); }, kInvalid,
                "token_ids[0]=-1"},
        BadCase{"OtherModel", [](R& r) { r.set_model("gpt"); }, absl::StatusCode::kNotFound,
                "model=gpt is not served here; this router serves sample"},
        BadCase{"Temperature", [](R& r) { r.mutable_sampling()->set_temperature(-1); }, kInvalid,
                "temperature=-1 must be in [0"},
        BadCase{"TemperatureNaN", [](R& r) { r.mutable_sampling()->set_temperature(kNaN); },
                kInvalid, "temperature=nan"},
        BadCase{"TemperatureInf", [](R& r) { r.mutable_sampling()->set_temperature(kInf); },
                kInvalid, "temperature=inf"},
        BadCase{"TopK", [](R& r) { r.mutable_sampling()->set_top_k(-1); }, kInvalid, "top_k=-1"},
        BadCase{"TopP", [](R& r) { r.mutable_sampling()->set_top_p(0); }, kInvalid,
                "top_p=0 must be in (0, 1]"},
        BadCase{"MinP", [](R& r) { r.mutable_sampling()->set_min_p(1.5f); }, kInvalid, "min_p=1.5"},
        BadCase{"Repetition", [](R& r) { r.mutable_sampling()->set_repetition_penalty(0); },
                kInvalid, "repetition_penalty=0"},
        BadCase{"Presence", [](R& r) { r.mutable_sampling()->set_presence_penalty(-1e9f); },
                kInvalid, "presence_penalty="},
        BadCase{"Frequency", [](R& r) { r.mutable_sampling()->set_frequency_penalty(kNaN); },
                kInvalid, "frequency_penalty=nan"},
        BadCase{"Logprobs", [](R& r) { r.mutable_sampling()->set_logprobs(21); }, kInvalid,
                "logprobs=21 must be in [0, 20]"},
        BadCase{"MaxTokensZero", [](R& r) { r.set_max_tokens(0); }, kInvalid, "max_tokens=0"},
        BadCase{"MaxTokensNegative", [](R& r) { r.set_max_tokens(-5); }, kInvalid, "max_tokens=-5"},
        BadCase{"NZero", [](R& r) { r.set_n(0); }, kInvalid, "n=0 must be in [1, 64]"},
        BadCase{"NLarge", [](R& r) { r.set_n(65); }, kInvalid, "n=65"},
        BadCase{"EmptyStop", [](R& r) { r.add_stop(""); }, kInvalid, "stop[0] is empty"},
        BadCase{"StopNotUtf8", [](R& r) { r.add_stop("\xc3"); }, kInvalid, "stop[0] is not UTF-8"},
        BadCase{"LongStop", [](R& r) { r.add_stop(std::string(513, 'a')); }, kInvalid,
                "stop[0] has 513 bytes"},
        BadCase{"ManyStops",
                [](R& r) {
                  for (int i = 0; i < 17; ++i) r.add_stop("x");
                },
                kInvalid, "stop has 17 strings"},
        BadCase{"StopId", [](R& r) { r.add_stop_token_ids(100); }, kInvalid,
                "stop_token_ids[0]=100"},
        BadCase{"Route", [](R& r) { r.set_route(static_cast<v1::Route>(9)); }, kInvalid, "route=9"},
        BadCase{"RequestId", [](R& r) { r.set_request_id("a b"); }, kInvalid, "request_id"}),
    [](const auto& info) { return info.param.name; });

TEST(ValidateRequestTest, WithoutTokenizerOnlyTokenIdsAreServed) {
  RequestLimits limits = Limits();
  limits.has_tokenizer = false;
  EXPECT_EQ(ValidateRequest(Good(), limits).code(), kInvalid);
  v1::GenerateRequest ids;
  ids.mutable_token_ids()->add_ids(1);
  EXPECT_TRUE(ValidateRequest(ids, limits).ok());
  ids.add_stop("x");
  EXPECT_EQ(ValidateRequest(ids, limits).code(), kInvalid);
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

TEST(ChoiceSeedTest, TheFirstKeepsTheSeedAndAllDiffer) {
  EXPECT_EQ(ChoiceSeed(5, 0), 5u);
  std::set<uint64_t> seeds;
  for (int32_t i = 0; i < 64; ++i) seeds.insert(ChoiceSeed(5, i));
  EXPECT_EQ(seeds.size(), 64u);
  EXPECT_EQ(ChoiceSeed(5, 3), ChoiceSeed(5, 3));
}

}  // namespace
}  // namespace tandem
