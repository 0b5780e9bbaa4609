#include "model/transformer/sampler.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::sampler_test {
namespace {

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
}  // namespace tandem::sampler_test
