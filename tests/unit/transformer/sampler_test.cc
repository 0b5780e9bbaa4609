#include "model/transformer/sampler.h"

#include <cmath>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::HasSubstr;

absl::Status With(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  return params.Validate();
}

TEST(SamplerTest, DefaultsAndEdgesAreValid) {
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

TEST(SamplerTest, RefusesByNameAndValue) {
  const struct {
    std::function<void(SamplingParams&)> change;
    const char* text;
  } cases[] = {
      {[](SamplingParams& p) { p.temperature = -1; }, "temperature is -1"},
      {[](SamplingParams& p) { p.temperature = 101; }, "temperature is 101"},
      {[](SamplingParams& p) { p.temperature = NAN; }, "temperature is nan"},
      {[](SamplingParams& p) { p.top_k = -1; }, "top_k is -1"},
      {[](SamplingParams& p) { p.top_p = 0; }, "top_p is 0"},
      {[](SamplingParams& p) { p.top_p = 1.5f; }, "top_p is 1.5"},
      {[](SamplingParams& p) { p.top_p = NAN; }, "top_p is nan"},
      {[](SamplingParams& p) { p.min_p = 1; }, "min_p is 1"},
      {[](SamplingParams& p) { p.min_p = NAN; }, "min_p is nan"},
      {[](SamplingParams& p) { p.repetition_penalty = 0; }, "repetition_penalty is 0"},
      {[](SamplingParams& p) { p.repetition_penalty = HUGE_VALF; }, "repetition_penalty is inf"},
      {[](SamplingParams& p) { p.presence_penalty = 2.5f; }, "presence_penalty is 2.5"},
      {[](SamplingParams& p) { p.frequency_penalty = -3; }, "frequency_penalty is -3"},
      {[](SamplingParams& p) { p.num_logprobs = -2; }, "num_logprobs is -2"},
      {[](SamplingParams& p) { p.num_logprobs = 21; }, "num_logprobs is 21"},
  };
  for (const auto& c : cases) {
    const absl::Status status = With(c.change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
  }
}

TEST(SamplerTest, RowCarriesEveryParameter) {
  const std::vector<int32_t> prompt = {1, 2, 3};
  const std::vector<int32_t> output = {4};
  const SamplingParams params{.temperature = 0.5f,
                              .top_k = 7,
                              .top_p = 0.9f,
                              .min_p = 0.1f,
                              .repetition_penalty = 1.1f,
                              .presence_penalty = 0.2f,
                              .frequency_penalty = 0.3f,
                              .seed = 42,
                              .num_logprobs = 5};
  const SampleRow row = MakeSampleRow(params, 4, prompt, output);
  EXPECT_EQ(row.temperature, 0.5f);
  EXPECT_EQ(row.top_k, 7);
  EXPECT_EQ(row.top_p, 0.9f);
  EXPECT_EQ(row.min_p, 0.1f);
  EXPECT_EQ(row.repetition_penalty, 1.1f);
  EXPECT_EQ(row.presence_penalty, 0.2f);
  EXPECT_EQ(row.frequency_penalty, 0.3f);
  EXPECT_EQ(row.seed, 42u);
  EXPECT_EQ(row.position, 4);
  EXPECT_EQ(row.num_logprobs, 5);
  EXPECT_EQ(row.prompt_ids.data(), prompt.data());
  EXPECT_EQ(row.prompt_ids.size(), 3u);
  EXPECT_EQ(row.output_ids.data(), output.data());
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
