// Which requests for a beam search are valid.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/request/request_validation.h"
#include "tests/unit/router/bad_request_cases.h"

namespace tandem::beam_validation_test {
namespace {

using bad_request_cases::BadCase;
using bad_request_cases::Beams;
using bad_request_cases::Good;
using bad_request_cases::kInvalid;
using bad_request_cases::kNaN;
using bad_request_cases::Limits;
using bad_request_cases::Sampling;
using ::testing::HasSubstr;
using R = v1::GenerateRequest;

v1::GenerateRequest GoodBeams() {
  v1::GenerateRequest request = Good();
  request.mutable_beam_search()->set_beam_width(4);
  request.set_n(2);
  return request;
}

TEST(ValidateRequestTest, TakesABeamSearch) {
  v1::GenerateRequest request = GoodBeams();
  EXPECT_TRUE(ValidateRequest(request, Limits()).ok()) << ValidateRequest(request, Limits());
  request.mutable_sampling()->set_logprobs(5);
  request.mutable_sampling()->set_seed(1);                // has no effect
  request.mutable_sampling()->set_repetition_penalty(1);  // has no effect either
  request.mutable_beam_search()->set_length_penalty(-10);
  request.mutable_beam_search()->set_early_stopping(v1::BeamSearch::EARLY_STOPPING_NEVER);
  for (int i = 0; i < 29; ++i) request.add_stop_token_ids(i * 3 + 1);  // 7 is EOS: 30 in all
  EXPECT_TRUE(ValidateRequest(request, Limits()).ok()) << ValidateRequest(request, Limits());
}

class BadBeamsTest : public testing::TestWithParam<BadCase> {};

TEST_P(BadBeamsTest, IsRefusedByFieldAndValue) {
  v1::GenerateRequest request = GoodBeams();
  GetParam().spoil(request);
  const absl::Status status = ValidateRequest(request, Limits());
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadBeamsTest,
    testing::Values(
        BadCase{"WidthUnset", [](R& r) { Beams(r).clear_beam_width(); }, kInvalid,
                "beam_width=0 must be in [2, 16]"},
        BadCase{"WidthOne", [](R& r) { Beams(r).set_beam_width(1); }, kInvalid, "beam_width=1"},
        BadCase{"WidthNegative", [](R& r) { Beams(r).set_beam_width(-3); }, kInvalid,
                "beam_width=-3"},
        BadCase{"WidthLarge", [](R& r) { Beams(r).set_beam_width(17); }, kInvalid, "beam_width=17"},
        BadCase{"MoreThanTheWidth", [](R& r) { r.set_n(5); }, kInvalid, "n=5 exceeds beam_width=4"},
        BadCase{"NZero", [](R& r) { r.set_n(0); }, kInvalid, "n=0 must be in [1, 64]"},
        BadCase{"BestOf", [](R& r) { r.set_best_of(4); }, kInvalid,
                "best_of=4 does not go with beam_search"},
        BadCase{"Temperature", [](R& r) { Sampling(r).set_temperature(0); }, kInvalid,
                "temperature=0 does not go with beam_search"},
        BadCase{"TopK", [](R& r) { Sampling(r).set_top_k(5); }, kInvalid, "top_k=5 does not"},
        BadCase{"TopP", [](R& r) { Sampling(r).set_top_p(0.5f); }, kInvalid, "top_p=0.5 does not"},
        BadCase{"MinP", [](R& r) { Sampling(r).set_min_p(0.5f); }, kInvalid, "min_p=0.5 does not"},
        BadCase{"Repetition", [](R& r) { Sampling(r).set_repetition_penalty(1.5f); }, kInvalid,
                "repetition_penalty=1.5 does not"},
        BadCase{"Presence", [](R& r) { Sampling(r).set_presence_penalty(0.5f); }, kInvalid,
                "presence_penalty=0.5 does not"},
        BadCase{"Frequency", [](R& r) { Sampling(r).set_frequency_penalty(-1); }, kInvalid,
                "frequency_penalty=-1 does not"},
        BadCase{"Bias", [](R& r) { (*Sampling(r).mutable_logit_bias())[3] = 1; }, kInvalid,
                "logit_bias of 1 tokens does not go with beam_search"},
        BadCase{"MinTokens", [](R& r) { Sampling(r).set_min_tokens(3); }, kInvalid,
                "min_tokens=3 does not go with beam_search"},
        BadCase{"Allowed", [](R& r) { Sampling(r).add_allowed_token_ids(3); }, kInvalid,
                "allowed_token_ids of 1 tokens does not go with beam_search"},
        BadCase{"BadWord", [](R& r) { r.add_bad_words("x"); }, kInvalid,
                "bad_words has 1 words; beam_search takes none"},
        BadCase{"NoTokens",
                [](R& r) {
                  r.set_max_tokens(0);
                  r.set_prompt_logprobs(1);
                },
                kInvalid, "max_tokens=0 must be at least 1"},
        BadCase{"StopString", [](R& r) { r.add_stop("x"); }, kInvalid,
                "stop has 1 strings; beam_search takes none"},
        BadCase{"LengthPenaltyNaN", [](R& r) { Beams(r).set_length_penalty(kNaN); }, kInvalid,
                "length_penalty=nan must be in [-10, 10]"},
        BadCase{"LengthPenalty", [](R& r) { Beams(r).set_length_penalty(11); }, kInvalid,
                "length_penalty=11"},
        BadCase{"EarlyStopping",
                [](R& r) {
                  Beams(r).set_early_stopping(static_cast<v1::BeamSearch::EarlyStopping>(7));
                },
                kInvalid, "early_stopping=7 is unknown"},
        BadCase{"TooManyStopTokens",
                [](R& r) {
                  for (int i = 0; i < 32; ++i) r.add_stop_token_ids(i);
                },
                kInvalid,
                "stop_token_ids: 33 stop tokens, EOS included, are too many for beam_width=4: at "
                "most 31"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::beam_validation_test
