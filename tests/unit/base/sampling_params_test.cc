#include "base/sampling_params.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::sampling_params_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::Status With(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  return params.Validate();
}

TEST(SamplingParamsTest, DefaultsAndTheEndsOfTheRangesAreValid) {
  EXPECT_TRUE(SamplingParams().Validate().ok());
  EXPECT_TRUE(With([](SamplingParams& p) {
                p = {.temperature = 0,
                     .top_k = 1,
                     .top_p = 1e-6f,
                     .min_p = 0.999f,
                     .repetition_penalty = 100,
                     .presence_penalty = -2,
                     .frequency_penalty = 2,
                     .num_logprobs = kMaxLogprobs};
              }).ok());
}

TEST(SamplingParamsTest, ARefusalNamesFieldAndValue) {
  const struct {
    std::function<void(SamplingParams&)> change;
    const char* text;
  } cases[] = {
      {[](SamplingParams& p) { p.temperature = -1; }, "temperature=-1 must be"},
      {[](SamplingParams& p) { p.temperature = 101; }, "temperature=101 must be"},
      {[](SamplingParams& p) { p.temperature = NAN; }, "temperature=nan must be"},
      {[](SamplingParams& p) { p.top_k = -1; }, "top_k=-1 must be"},
      {[](SamplingParams& p) { p.top_p = 0; }, "top_p=0 must be"},
      {[](SamplingParams& p) { p.top_p = 1.5f; }, "top_p=1.5 must be"},
      {[](SamplingParams& p) { p.top_p = NAN; }, "top_p=nan must be"},
      {[](SamplingParams& p) { p.min_p = 1; }, "min_p=1 must be"},
      {[](SamplingParams& p) { p.min_p = NAN; }, "min_p=nan must be"},
      {[](SamplingParams& p) { p.repetition_penalty = 0; }, "repetition_penalty=0 must be"},
      {[](SamplingParams& p) { p.repetition_penalty = HUGE_VALF; },
       "repetition_penalty=inf must be"},
      {[](SamplingParams& p) { p.presence_penalty = 2.5f; }, "presence_penalty=2.5 must be"},
      {[](SamplingParams& p) { p.frequency_penalty = -3; }, "frequency_penalty=-3 must be"},
      {[](SamplingParams& p) { p.num_logprobs = -2; }, "logprobs=-2 must be"},
      {[](SamplingParams& p) { p.num_logprobs = 21; }, "logprobs=21 must be"},
  };
  for (const auto& c : cases) {
    const absl::Status status = With(c.change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
  }
}

TEST(SamplingParamsTest, LogprobsThatWereAskedForCannotBeNegative) {
  EXPECT_TRUE(CheckLogprobs(0).ok());
  EXPECT_TRUE(CheckLogprobs(kMaxLogprobs).ok());
  EXPECT_FALSE(CheckLogprobs(-1).ok());
  EXPECT_FALSE(CheckLogprobs(kMaxLogprobs + 1).ok());
}

TEST(BeamParamsTest, ARefusalNamesFieldAndRange) {
  EXPECT_TRUE((BeamParams{.width = 2, .length_penalty = -10}).Validate().ok());
  EXPECT_TRUE((BeamParams{.width = kMaxBeamWidth, .length_penalty = 10}).Validate().ok());
  for (const int32_t width : {-1, 0, 1, kMaxBeamWidth + 1}) {
    const absl::Status status = BeamParams{.width = width}.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("beam_width=" + std::to_string(width)), HasSubstr("[2, 16]")));
  }
  using Limits = std::numeric_limits<float>;
  for (const float penalty : {10.5f, -11.0f, Limits::infinity(), Limits::quiet_NaN()}) {
    const absl::Status status = BeamParams{.length_penalty = penalty}.Validate();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("length_penalty="), HasSubstr("[-10, 10]")));
  }
}

}  // namespace
}  // namespace tandem::sampling_params_test
