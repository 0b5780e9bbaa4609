// Predictions for any worker: against a scheduler that runs every step by itself, and in what they
// may never be.
#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"
#include "scheduler/latency_model/placement_model.h"
#include "tests/property/any_worker.h"
#include "tests/property/step_by_step.h"

namespace tandem::placement_property_test {
namespace {

TEST(PlacementPropertyTest, ARollInSegmentsIsARollStepByStep) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    AnyWorker any(seed);
    const StepModel steps = any.Steps(false);
    const WorkerState worker = any.State(steps);
    const RequestShape request = {.prompt_tokens = any.Pick(1, 1500),
                                  .output_tokens = 1.0 * any.Pick(1, 100)};
    const auto predicted = PredictUnified(worker, request, 0);
    ASSERT_TRUE(predicted.has_value()) << seed;
    const ModelTime expected = StepByStep(worker).Ttft(request);
    // The roll is exact up to kExactSegments segments, which few of these workers exceed.
    if (std::abs(predicted->ttft / expected - 1) < 1e-9) ++compared;
    ASSERT_NEAR(predicted->ttft / expected, 1, 0.1) << seed;
  }
  EXPECT_GE(compared, 2900);
}

void ExpectSound(const PlacementPrediction& p) {
  const PredictedStages& s = p.stages;
  for (const ModelTime time : {s.admission, s.queue, s.prefill, s.transfer, s.decode, p.ttft,
                               p.tpot, p.e2e, p.externality}) {
    ASSERT_TRUE(std::isfinite(time.count()));
    ASSERT_GE(time.count(), -1e-9);
  }
  ASSERT_NEAR(p.ttft.count(), (s.admission + s.queue + s.prefill).count(), 1e-6);
  ASSERT_NEAR(p.e2e.count(), (p.ttft + s.transfer + s.decode).count(), 1e-6);
}

constexpr double kSlack = 1e-6;

TEST(PlacementPropertyTest, MoreWorkNeverTakesLess) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    AnyWorker any(seed);
    const StepModel steps = any.Steps(true);
    const WorkerState worker = any.State(steps);
    const RequestShape request = {.prompt_tokens = any.Pick(1, 1500),
                                  .output_tokens = 1.0 * any.Pick(1, 100)};
    const auto before = PredictUnified(worker, request, 0);
    ASSERT_TRUE(before.has_value());
    ExpectSound(*before);

    RequestShape longer = request;
    longer.prompt_tokens += any.Pick(1, 500);
    const auto with_longer = PredictUnified(worker, longer, 0);
    ASSERT_TRUE(with_longer.has_value());
    EXPECT_GE(with_longer->ttft.count() + kSlack, before->ttft.count()) << seed;

    WorkerState charged = worker;
    charged.charged.push_back(any.Waiting());
    const auto behind_one_more = PredictUnified(charged, request, 0);
    ASSERT_TRUE(behind_one_more.has_value());
    ExpectSound(*behind_one_more);
    EXPECT_GE(behind_one_more->ttft.count() + kSlack, before->ttft.count()) << seed;

    const auto with_hits = PredictUnified(worker, request, any.Pick(0, request.prompt_tokens));
    EXPECT_LE(with_hits->ttft.count(), before->ttft.count() + kSlack) << seed;
  }
}

TEST(PlacementPropertyTest, OneMoreDecodeNeverMakesARequestFaster) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    AnyWorker any(seed);
    // Without a floor: smaller chunks of a prompt could lie below it, which costs nothing.
    StepCoefficients coefficients = any.Steps(false).coefficients();
    coefficients.alpha.floor_ms = 0;
    const StepModel steps = StepModel::Create(coefficients).value();
    WorkerState worker = any.State(steps);
    worker.waiting.clear();
    worker.max_sequences = 64;
    worker.available_kv_tokens = 1000000;
    const RequestShape request = {.prompt_tokens = any.Pick(1, 1500),
                                  .output_tokens = 1.0 * any.Pick(1, 100)};
    const auto before = PredictUnified(worker, request, 0);
    worker.decoding.push_back(
        {.context_tokens = 1.0 * any.Pick(1, 1000), .remaining_tokens = 2000});
    const auto after = PredictUnified(worker, request, 0);
    EXPECT_GE(after->ttft.count() + kSlack, before->ttft.count()) << seed;
    EXPECT_GE(after->e2e.count() + kSlack, before->e2e.count()) << seed;
  }
}

TEST(PlacementPropertyTest, DisaggregatedPredictionsAreSoundAndShrinkWithBandwidth) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    AnyWorker any(seed);
    const StepModel steps = any.Steps(true);
    WorkerState prefill = any.State(steps);
    prefill.prefill_ends = PrefillEnds::kInHandOff;
    prefill.decoding.clear();
    WorkerState decode = any.State(steps);
    decode.waiting.clear();
    const RequestShape request = {.prompt_tokens = any.Pick(1, 1500),
                                  .output_tokens = 1.0 * any.Pick(1, 100)};
    const auto p = ForecastPrefill(prefill, request, any.Pick(0, 1500));
    const auto d = ForecastDecode(decode, request, any.Pick(0, 1500), ModelTime(any.Pick(0, 500)));
    ASSERT_TRUE(p.has_value() && d.has_value());
    const KvTransferShape kv = {.bytes_per_token = any.Pick(1, 100000), .layers = any.Pick(1, 40)};
    LinkModel link = {.setup = ModelTime(any.Share()),
                      .operation = ModelTime(0.01 * any.Share()),
                      .bytes_per_second = 1e5 + 1e9 * any.Share()};
    const auto slow = JoinDisaggregated(request, kv, *p, *d, link, any.Pick(1, 8));
    ExpectSound(slow);
    link.bytes_per_second *= 2;
    const auto fast = JoinDisaggregated(request, kv, *p, *d, link, 1);
    ExpectSound(fast);
    EXPECT_LE(fast.e2e.count(), slow.e2e.count() + kSlack) << seed;
    EXPECT_EQ(fast.ttft.count(), slow.ttft.count()) << "the first token comes before the KV";
  }
}

// Queues as long as a broken or hostile report could make them.
TEST(PlacementPropertyTest, AnyQueueGivesAFinitePrediction) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    AnyWorker any(seed);
    const StepModel steps = any.Steps(true);
    WorkerState worker = any.State(steps);
    worker.available_kv_tokens = int64_t{1} << 40;
    worker.waiting.push_back({.count = 1000000000, .new_tokens = 2000000000, .output_tokens = 1e9});
    worker.decoding.push_back({.count = 1000000, .context_tokens = 1e9, .remaining_tokens = 1e12});
    worker.waiting.push_back({.count = -5, .new_tokens = 10});
    worker.decoding.push_back({.remaining_tokens = -1});
    const auto p = PredictUnified(worker, {.prompt_tokens = 2000000000, .output_tokens = 1e9}, 0);
    if (p) ExpectSound(*p);
  }
}

}  // namespace
}  // namespace tandem::placement_property_test
