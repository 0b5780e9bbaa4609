// Which requests are valid, field by field. Those for a beam search and those with a forced output
// are in beam_validation_test.cc and forced_validation_test.cc.

#include "router/request/request_validation.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/router/bad_request_cases.h"

namespace tandem::request_validation_test {
namespace {

using bad_request_cases::BadCase;
using bad_request_cases::Good;
using bad_request_cases::kInf;
using bad_request_cases::kInvalid;
using bad_request_cases::kNaN;
using bad_request_cases::Limits;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using R = v1::GenerateRequest;

TEST(ValidateRequestTest, TakesTheSimplestRequest) {
  EXPECT_TRUE(ValidateRequest(Good(), Limits()).ok());
}

// Tokenizing the text would take seconds to find that out.
TEST(ValidateRequestTest, RefusesATextThatIsTooLongForTheContextWhateverItsTokensAre) {
  RequestLimits limits = Limits();
  limits.max_bytes_per_token = 10;
  v1::GenerateRequest request = Good();
  request.set_text(std::string(630, 'a'));
  EXPECT_TRUE(ValidateRequest(request, limits).ok());
  request.set_text(std::string(631, 'a'));
  const absl::Status status = ValidateRequest(request, limits);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("text has 631 bytes; the context of 64"));
  limits.max_bytes_per_token.reset();
  EXPECT_TRUE(ValidateRequest(request, limits).ok()) << "its tokens may stand for any text";
}

class BadRequestTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadRequestTest, IsRefusedByFieldAndValue) {
  v1::GenerateRequest request = Good();
  GetParam().spoil(request);
  const absl::Status status = ValidateRequest(request, Limits());
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().says));
}

v1::SamplingParams& SamplingOf(v1::GenerateRequest& request) { return *request.mutable_sampling(); }

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
        BadCase{"MinPOfOne", [](R& r) { r.mutable_sampling()->set_min_p(1); }, kInvalid,
                "min_p=1 must be in [0, 1)"},
        BadCase{"Presence", [](R& r) { r.mutable_sampling()->set_presence_penalty(-2.5f); },
                kInvalid, "presence_penalty=-2.5 must be in [-2, 2]"},
        BadCase{"Frequency", [](R& r) { r.mutable_sampling()->set_frequency_penalty(kNaN); },
                kInvalid, "frequency_penalty=nan"},
        BadCase{"Logprobs", [](R& r) { r.mutable_sampling()->set_logprobs(21); }, kInvalid,
                "logprobs=21 must be in [0, 20]"},
        BadCase{"MaxTokensZero", [](R& r) { r.set_max_tokens(0); }, kInvalid, "max_tokens=0"},
        BadCase{"MaxTokensNegative", [](R& r) { r.set_max_tokens(-5); }, kInvalid, "max_tokens=-5"},
        BadCase{"NZero", [](R& r) { r.set_n(0); }, kInvalid, "n=0 must be in [1, 64]"},
        BadCase{"NLarge", [](R& r) { r.set_n(65); }, kInvalid, "n=65"},
        BadCase{"BestOfLess",
                [](R& r) {
                  r.set_n(3);
                  r.set_best_of(2);
                },
                kInvalid, "best_of=2 must be in [n=3, 64]"},
        BadCase{"BestOfZero", [](R& r) { r.set_best_of(0); }, kInvalid,
                "best_of=0 must be in [n=1"},
        BadCase{"BestOfLarge", [](R& r) { r.set_best_of(65); }, kInvalid, "best_of=65"},
        BadCase{"Tenant", [](R& r) { r.set_tenant("a\nb"); }, kInvalid, "tenant may hold"},
        BadCase{"LongTenant", [](R& r) { r.set_tenant(std::string(129, 'a')); }, kInvalid,
                "tenant has 129 bytes; at most 128"},
        BadCase{"Salt", [](R& r) { r.set_cache_salt("caf\xc3\xa9"); }, kInvalid,
                "cache_salt may hold"},
        BadCase{"LongSession", [](R& r) { r.set_session_id(std::string(257, 'a')); }, kInvalid,
                "session_id has 257 bytes; at most 256"},
        BadCase{"LongSalt", [](R& r) { r.set_cache_salt(std::string(200, 'a')); }, kInvalid,
                "cache_salt has 200 bytes"},
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
        BadCase{"BiasLarge", [](R& r) { (*SamplingOf(r).mutable_logit_bias())[3] = 100.5f; },
                kInvalid, "logit_bias[3]=100.5 must be in [-100, 100]"},
        BadCase{"BiasNaN", [](R& r) { (*SamplingOf(r).mutable_logit_bias())[3] = kNaN; }, kInvalid,
                "logit_bias[3]=nan"},
        BadCase{"BiasOutside", [](R& r) { (*SamplingOf(r).mutable_logit_bias())[100] = 1; },
                kInvalid, "logit_bias: token 100 must be in [0, 100)"},
        BadCase{"MinTokensNegative", [](R& r) { SamplingOf(r).set_min_tokens(-1); }, kInvalid,
                "min_tokens=-1"},
        BadCase{"MinTokensAboveMaxTokens",
                [](R& r) {
                  SamplingOf(r).set_min_tokens(9);
                  r.set_max_tokens(8);
                },
                kInvalid, "min_tokens=9 must be at most max_tokens=8"},
        BadCase{"AllowedOutside", [](R& r) { SamplingOf(r).add_allowed_token_ids(-2); }, kInvalid,
                "allowed_token_ids[0]=-2"},
        BadCase{"OnlyEosAllowedBeforeMinTokens",
                [](R& r) {
                  SamplingOf(r).add_allowed_token_ids(99);
                  SamplingOf(r).set_min_tokens(1);
                },
                kInvalid, "leave no token that may be sampled"},
        BadCase{"EmptyBadWord", [](R& r) { r.add_bad_words("  "); }, kInvalid,
                "bad_words[0] is empty"},
        BadCase{"LongBadWord", [](R& r) { r.add_bad_words(std::string(513, 'a')); }, kInvalid,
                "bad_words[0] has 513 bytes"},
        BadCase{"BadWordNotUtf8", [](R& r) { r.add_bad_words("\xc3"); }, kInvalid,
                "bad_words[0] is not UTF-8"},
        BadCase{"ManyBadWords",
                [](R& r) {
                  for (int i = 0; i < 129; ++i) r.add_bad_words("x");
                },
                kInvalid, "bad_words has 129 words"},
        BadCase{"PromptLogprobs", [](R& r) { r.set_prompt_logprobs(21); }, kInvalid,
                "prompt_logprobs=21 must be in [0, 20]"},
        BadCase{"TruncateToNothing", [](R& r) { r.set_truncate_prompt_tokens(0); }, kInvalid,
                "truncate_prompt_tokens=0 must be at least 1"},
        BadCase{"Route", [](R& r) { r.set_route(static_cast<v1::Route>(9)); }, kInvalid, "route=9"},
        BadCase{"TtftSloOfZero", [](R& r) { r.set_ttft_slo_ms(0); }, kInvalid,
                "ttft_slo_ms=0 must"},
        BadCase{"TtftSloNaN", [](R& r) { r.set_ttft_slo_ms(kNaN); }, kInvalid, "ttft_slo_ms=nan"},
        BadCase{"TpotSloNegative", [](R& r) { r.set_tpot_slo_ms(-3); }, kInvalid, "tpot_slo_ms=-3"},
        BadCase{"TpotSloInf", [](R& r) { r.set_tpot_slo_ms(kInf); }, kInvalid, "tpot_slo_ms=inf"},
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

TEST(ValidateRequestTest, TakesNoTokensOfAPromptThatIsScored) {
  v1::GenerateRequest request = Good();
  request.set_max_tokens(0);
  EXPECT_EQ(ValidateRequest(request, Limits()).code(), kInvalid);
  request.set_prompt_logprobs(0);
  EXPECT_TRUE(ValidateRequest(request, Limits()).ok()) << ValidateRequest(request, Limits());
  const auto one_left = ResolveMaxTokens(request, 63, Limits());
  ASSERT_TRUE(one_left.ok()) << one_left.status();
  EXPECT_EQ(*one_left, 0);
  // A decode worker would refuse to reserve for it, so no route takes it.
  EXPECT_EQ(ResolveMaxTokens(request, 64, Limits()).status().message(),
            "prompt has 64 tokens; the context of 64 holds at most 63 and one more");
}

TEST(ValidateRequestTest, TakesATextOfAnyLengthWhoseEndAloneIsUsed) {
  RequestLimits limits = Limits();
  limits.max_bytes_per_token = 10;
  v1::GenerateRequest request = Good();
  request.set_text(std::string(631, 'a'));
  EXPECT_EQ(ValidateRequest(request, limits).code(), kInvalid);
  request.set_truncate_prompt_tokens(5);
  EXPECT_TRUE(ValidateRequest(request, limits).ok()) << ValidateRequest(request, limits);
  std::vector<int32_t> ids = {1, 2, 3, 4, 5, 6, 7};
  TruncatePrompt(request, ids);
  EXPECT_THAT(ids, ElementsAre(3, 4, 5, 6, 7));
  TruncatePrompt(request, ids);
  EXPECT_THAT(ids, ElementsAre(3, 4, 5, 6, 7));
}

}  // namespace
}  // namespace tandem::request_validation_test
