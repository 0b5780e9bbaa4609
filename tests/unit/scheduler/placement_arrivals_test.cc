// Predictions for workers to which requests keep coming: how these slow a request down, and how it
// delays them.

#include <cmath>

#include "gtest/gtest.h"
#include "scheduler/latency_model/placement_model.h"
#include "tests/unit/scheduler/placement_model_fixture.h"

namespace tandem::placement_arrivals_test {
namespace {

using placement_model::kExact;
using placement_model::PlacementModelTest;

TEST_F(PlacementModelTest, RequestsToComeSlowTheDecodesDown) {
  WorkerState worker = Idle();
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 11};
  const ModelTime alone = PredictUnified(worker, request, 0)->stages.decode;
  worker.arrivals.new_tokens_per_second = 1000;  // that take 0.1 ms each: a tenth of the time
  EXPECT_NEAR(PredictUnified(worker, request, 0)->stages.decode / alone, 1 / 0.9, kExact);
  worker.arrivals.new_tokens_per_second = 1e9;
  // Each of the ten steps computes 511 tokens of prompts, which take 51.1 ms.
  EXPECT_NEAR(PredictUnified(worker, request, 0)->stages.decode / alone, 1 + 511 / 111.055, kExact)
      << "decodes run in every step, so they never stand still";
}

// Each prompt to come takes 100 ms, so that no output ever takes the mean.
TEST_F(PlacementModelTest, MostLikelyNoneComesWhileAShortOutputDecodes) {
  WorkerState worker = Idle();
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 11};
  const PlacementPrediction alone = PredictUnified(worker, request, 0).value();
  worker.arrivals = {.sequences_per_second = 1, .new_tokens_per_second = 1000};
  const PlacementPrediction mean = PredictUnified(worker, request, 0).value();
  EXPECT_NEAR(mean.unlikely / mean.stages.decode, 0.1, 0.01);
  const PlacementPrediction likely = MostLikely(mean);
  EXPECT_NEAR(likely.stages.decode / alone.stages.decode, 1, kExact);
  EXPECT_NEAR(likely.tpot / alone.tpot, 1, kExact);
  EXPECT_NEAR(likely.e2e / alone.e2e, 1, kExact);
  EXPECT_EQ(likely.ttft, mean.ttft);
  EXPECT_EQ(MostLikely(likely).e2e, likely.e2e);
}

TEST_F(PlacementModelTest, OfManyToComeTheMeanIsAsLikelyAsAnyNumber) {
  WorkerState worker = Idle();
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 11};
  const PlacementPrediction alone = PredictUnified(worker, request, 0).value();
  // 3.7 come on average within 123 ms: three are likely.
  worker.arrivals = {.sequences_per_second = 30, .new_tokens_per_second = 1000};
  const PlacementPrediction few = PredictUnified(worker, request, 0).value();
  const double added = (few.stages.decode - alone.stages.decode).count();
  EXPECT_NEAR(few.unlikely.count() / added, 1 - 3 / 3.7, 0.05);
  worker.arrivals.sequences_per_second = 300;
  EXPECT_EQ(PredictUnified(worker, request, 0)->unlikely.count(), 0);
}

TEST_F(PlacementModelTest, WhatIsUnlikelyAtTheDecodeWorkerIsUnlikelyOfThePair) {
  WorkerState decode_worker = Idle();
  decode_worker.arrivals = {.sequences_per_second = 1, .context_tokens = 100, .output_tokens = 100};
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 11};
  const auto prefill = ForecastPrefill(IdlePrefill(), request, 0);
  const auto decode = ForecastDecode(decode_worker, request, 0, prefill->prefill);
  const PlacementPrediction mean = JoinDisaggregated(request, kv_, *prefill, *decode, link_, 1);
  EXPECT_GT(mean.unlikely.count(), 0);
  const PlacementPrediction likely = MostLikely(mean);
  EXPECT_NEAR((mean.e2e - likely.e2e).count(), mean.unlikely.count(), kExact);
  EXPECT_NEAR((likely.ttft + likely.stages.transfer + likely.stages.decode - likely.e2e).count(), 0,
              kExact);
  EXPECT_NEAR((likely.tpot * 10 - likely.stages.transfer - likely.stages.decode).count(), 0,
              kExact);
}

TEST_F(PlacementModelTest, SequencesToComeDecodeBesideIt) {
  WorkerState worker = Idle();
  worker.available_kv_tokens = 1'000'000'000;
  worker.arrivals = {.sequences_per_second = 10, .output_tokens = 1e4};
  const auto p = PredictUnified(worker, {.prompt_tokens = 1, .output_tokens = 101}, 0);
  // A step takes 11 ms and one more for each sequence that has come: 11 + 0.01 t. A hundred of them
  // take 1100 (e - 1) ms.
  EXPECT_NEAR(p->stages.decode.count(), 1100 * (std::exp(1) - 1), 20);
  // Each of those that come is slowed down by a millisecond per step.
  EXPECT_GT(p->externality.count(), 500);
}

TEST_F(PlacementModelTest, SequencesThatComeAlsoEndSoThatTheirNumberStaysWhatLittlesLawSays) {
  WorkerState worker = Idle();
  for (const double output : {20.0, 200.0}) {
    worker.arrivals = {.sequences_per_second = 40 / output, .output_tokens = output};
    // 0.04 sequences come per ms and step of their output: N = 0.04 T and T = 11 + N.
    worker.decoding = {{.count = 1, .context_tokens = 0, .remaining_tokens = output / 2}};
    const auto p = PredictUnified(worker, {.prompt_tokens = 1, .output_tokens = 2001}, 0);
    // Without what their contexts add.
    EXPECT_NEAR(p->tpot.count(), 11 / (1 - 0.04) + 1, 0.6) << output;
  }
}

TEST_F(PlacementModelTest, NoMoreSequencesJoinThanHavePlacesAndKv) {
  WorkerState worker = Idle();
  worker.arrivals = {.sequences_per_second = 1e6, .output_tokens = 1e4};
  worker.max_sequences = 4;
  const RequestShape request = {.prompt_tokens = 1, .output_tokens = 101};
  EXPECT_LT(PredictUnified(worker, request, 0)->tpot.count(), 10 + 4 + 1);
  worker.max_sequences = 64;
  worker.available_kv_tokens = 20'000;
  EXPECT_LT(PredictUnified(worker, request, 0)->tpot.count(), 10 + 5 + 1)
      << "four fit, because each holds 5,000 tokens on average";
}

TEST_F(PlacementModelTest, APromptDelaysThoseThatComeWhileItIsComputed) {
  WorkerState worker = IdlePrefill();
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 2};
  EXPECT_EQ(ForecastPrefill(worker, request, 0)->later_prompts.count(), 0);
  worker.arrivals = {.sequences_per_second = 10, .new_tokens_per_second = 1000};
  // 20 ms of prefill, 0.9 of the time without other prompts: 10 per second come in 20 / 0.9 ms.
  const double later = ForecastPrefill(worker, request, 0)->later_prompts.count();
  EXPECT_NEAR(later, 20 * 10 * 0.02 / 0.9, kExact);
  worker.waiting = {{.new_tokens = 412, .output_tokens = 1}};
  EXPECT_GT(ForecastPrefill(worker, request, 0)->later_prompts.count(), 0.9 * later)
      << "the longer the queue, the more find it";
}

TEST_F(PlacementModelTest, KvDelaysThatOfRequestsThatComeUntilTheLinkHasNoneLeft) {
  WorkerState worker = IdlePrefill();
  worker.usual = {.sequences_per_second = 10, .prompt_tokens = 50, .lasting_seconds = 100};
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 2};
  const auto prefill = ForecastPrefill(worker, request, 0);
  const auto decode = ForecastDecode(Idle(), request, 0, ModelTime(20));
  link_ = {.bytes_per_second = 1e6 / 3};  // 30 ms, of which the prefill leaves 12 to be sent
  const auto first = JoinDisaggregated(request, kv_, *prefill, *decode, link_, 1);
  EXPECT_NEAR(first.stages.transfer.count(), 12, kExact);
  EXPECT_EQ(first.backlog_transfers.count(), 0) << "the link has nothing else to carry";
  const auto later = JoinDisaggregated(request, kv_, *prefill, *decode, link_, 1, ModelTime(40));
  EXPECT_NEAR(later.stages.transfer.count(), 12 + 40, kExact);
  // Others have half as much KV: 6 ms each for a tenth of a second, so that the 40 ms take 40 /
  // 0.94.
  EXPECT_NEAR(later.backlog_transfers.count(), 12 * 10 * 0.040 / 0.94, kExact);
}

}  // namespace
}  // namespace tandem::placement_arrivals_test
