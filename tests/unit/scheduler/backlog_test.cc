// How many requests find a worker, or a link, busy with what it has.

#include "scheduler/latency_model/backlog.h"

#include <utility>

#include "gtest/gtest.h"

namespace tandem::backlog_test {
namespace {

// Prefills take 0.1 ms per token; decodes 10 + B + 0.001 C ms.
StepModel Steps() {
  StepCoefficients c;
  c.alpha = {.floor_ms = 0, .base_ms = 10, .token_ms = 0.1, .pair_ms = 0};
  c.beta = {.buckets = {{.max_sequences = 64, .base_ms = 10}},
            .sequence_ms = 1,
            .context_token_ms = 1e-3};
  return StepModel::Create(std::move(c)).value();
}

TEST(BacklogTest, PromptsOutputsAndTheStepsThatTheyShareKeepAWorkerBusy) {
  const StepModel steps = Steps();
  WorkerState worker{.steps = &steps, .max_step_tokens = 500};
  EXPECT_EQ(UtilizationOf(worker), 0);
  worker.usual = {.sequences_per_second = 5,
                  .new_tokens_per_second = 1000,
                  .context_tokens = 90,
                  .output_tokens = 20};
  // Per second: 100 ms of prompts, two steps of 11 ms beside them, and 5 * 20 decodes of 1 + 0.1
  // ms.
  EXPECT_NEAR(UtilizationOf(worker), 0.1 + 0.022 + 0.11, 1e-9);
  worker.prefill_ends = PrefillEnds::kInHandOff;
  EXPECT_NEAR(UtilizationOf(worker), 0.1, 1e-9) << "outputs are decoded elsewhere";
}

TEST(BacklogTest, MoreFindItBusyTheNearerItIsToItsLimit) {
  const ArrivalRates arrivals = {.sequences_per_second = 100, .lasting_seconds = 1};
  EXPECT_EQ(ArrivalsWithin(arrivals, ModelTime(0), 0.5), 0);
  EXPECT_NEAR(ArrivalsWithin(arrivals, ModelTime(10), 0), 1, 1e-9);
  EXPECT_NEAR(ArrivalsWithin(arrivals, ModelTime(10), 0.9), 10, 1e-9);
}

TEST(BacklogTest, BeyondTheLimitTheyAreForeseenForTwiceAsLongAsTheyHaveBeenComing) {
  const ArrivalRates arrivals = {.sequences_per_second = 100, .lasting_seconds = 1};
  EXPECT_NEAR(ArrivalsWithin(arrivals, ModelTime(10), 1), 200, 1e-9);
  EXPECT_NEAR(ArrivalsWithin(arrivals, ModelTime(10), 3), 200, 1e-9);
  EXPECT_EQ(ArrivalsWithin({}, ModelTime(10), 3), 0);
}

}  // namespace
}  // namespace tandem::backlog_test
