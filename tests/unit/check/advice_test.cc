#include "server/check/advice.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::advice_test {
namespace {

using testing::Contains;
using testing::HasSubstr;

// A prompt token takes 0.1 ms. A step of decodes takes 10 ms and 0.1 ms for each sequence.
WorkerModel Worker() {
  StepCoefficients steps;
  steps.alpha = {.token_ms = 0.1};
  steps.beta = {.buckets = {{.max_sequences = 1, .base_ms = 10}}, .sequence_ms = 0.1};
  const absl::StatusOr<StepModel> model = StepModel::Create(steps);
  EXPECT_TRUE(model.ok()) << model.status();
  return {.steps = *model,
          .link = LinkModel{.bytes_per_second = 1e9},
          .num_layers = 10,
          .kv_bytes_per_token = 1000,
          .pool_tokens = 100'000,
          .max_step_tokens = 512,
          .max_sequences = 64};
}

TEST(AdviceTest, OneWorkerIsEnoughForALowRate) {
  const Advice advice = AdviseOn({.requests_per_second = 0.1}, Worker());
  ASSERT_TRUE(advice.unified && advice.disaggregated);
  EXPECT_EQ(advice.unified->unified, 1);
  EXPECT_EQ(advice.disaggregated->workers(), 2);
  EXPECT_THAT(advice.conclusion, HasSubstr("--prefill 0 --decode 0 --unified 1"));
}

// 1000 prompt tokens take 100 ms: at 20 requests/s they fill 2 workers, of which 0.8 may be used.
TEST(AdviceTest, PrefillWorkersAreAsManyAsPromptsFill) {
  const Advice advice =
      AdviseOn({.input_tokens = 1000, .output_tokens = 2, .requests_per_second = 20}, Worker());
  ASSERT_TRUE(advice.disaggregated);
  EXPECT_EQ(advice.disaggregated->prefill, 3);
  EXPECT_THAT(advice.arithmetic, Contains(HasSubstr("20 requests/s fill 2.00 workers")));
  // M/D/1: two thirds busy, so that a prompt waits as long as it takes.
  EXPECT_NEAR(advice.disaggregated->ttft_ms, 200, 1);
}

TEST(AdviceTest, AStricterLimitOfTheFirstTokenNeedsMorePrefillWorkers) {
  const Workload load = {
      .input_tokens = 1000, .output_tokens = 2, .requests_per_second = 20, .ttft_slo_ms = 120};
  const Advice advice = AdviseOn(load, Worker());
  ASSERT_TRUE(advice.disaggregated);
  EXPECT_GT(advice.disaggregated->prefill, 3);
  EXPECT_LE(advice.disaggregated->ttft_ms, 120);
}

// A batch of 64 takes 16.4 ms, which is 3900 tokens/s, of which 0.8 may be used.
TEST(AdviceTest, DecodeWorkersAreAsManyAsTokensNeed) {
  const auto decode_for = [](double rate) {
    const Advice advice =
        AdviseOn({.input_tokens = 10, .output_tokens = 100, .requests_per_second = rate}, Worker());
    return advice.disaggregated ? advice.disaggregated->decode : 0;
  };
  EXPECT_EQ(decode_for(31), 1);
  EXPECT_EQ(decode_for(32), 2);
  EXPECT_EQ(decode_for(62), 2);
  EXPECT_EQ(decode_for(63), 3);
}

TEST(AdviceTest, TheKvPoolBoundsTheBatch) {
  WorkerModel worker = Worker();
  worker.pool_tokens = 1100;  // ten requests
  const Workload load = {.input_tokens = 10, .output_tokens = 100, .requests_per_second = 31};
  const Advice small = AdviseOn(load, worker);
  ASSERT_TRUE(small.disaggregated);
  EXPECT_GT(small.disaggregated->decode, 1);
  EXPECT_THAT(small.arithmetic, Contains(HasSubstr("decodes at most 10 such sequences")));
}

// Long prompts that hold decodes up break a strict TPOT, which workers of their own keep.
TEST(AdviceTest, PrefillApartIsAdvisedWherePromptsWouldBreakTheTpot) {
  const Workload load = {.input_tokens = 4000,
                         .output_tokens = 100,
                         .requests_per_second = 1,
                         .ttft_slo_ms = {},
                         .tpot_slo_ms = 10.8};
  const Advice advice = AdviseOn(load, Worker());
  ASSERT_TRUE(advice.disaggregated);
  EXPECT_THAT(advice.conclusion, HasSubstr("--unified 0"));
}

TEST(AdviceTest, LimitsThatNothingKeepsAreSaid) {
  const Advice advice = AdviseOn({.ttft_slo_ms = 1}, Worker());
  EXPECT_FALSE(advice.unified || advice.disaggregated);
  EXPECT_THAT(advice.conclusion, HasSubstr("No number of such workers"));
  WorkerModel tiny = Worker();
  tiny.pool_tokens = 16;
  EXPECT_THAT(AdviseOn({}, tiny).conclusion, HasSubstr("No number of such workers"));
}

TEST(AdviceTest, WithoutALinkTheTransferIsSaidToBeLeftOut) {
  WorkerModel worker = Worker();
  worker.link.reset();
  EXPECT_THAT(AdviseOn({}, worker).arithmetic, Contains(HasSubstr("No link was measured")));
}

}  // namespace
}  // namespace tandem::advice_test
