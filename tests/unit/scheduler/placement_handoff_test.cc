// Predictions for a prefill and a decode worker with a link between them: how their stages add up.

#include "gtest/gtest.h"
#include "scheduler/latency_model/placement_model.h"
#include "tests/unit/scheduler/placement_model_fixture.h"

namespace tandem::placement_handoff_test {
namespace {

using placement_model::kExact;
using placement_model::PlacementModelTest;

TEST_F(PlacementModelTest, ADisaggregatedPlacementAddsItsStagesUp) {
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 2};
  const auto prefill = ForecastPrefill(IdlePrefill(), request, 0);
  ASSERT_TRUE(prefill.has_value());
  EXPECT_NEAR(prefill->prefill.count(), 20, kExact);
  EXPECT_EQ(prefill->chunks, 1);
  const auto decode = ForecastDecode(TwoDecodes(), request, 0, ModelTime(20));
  ASSERT_TRUE(decode.has_value());
  // The decode worker answers after the step in progress. The KV arrives in the middle of the
  // second step after that: two steps of 13.001 ms on average run 6.002 ms longer than the 20.
  EXPECT_NEAR(decode->admission.count(), 6.5, kExact);
  EXPECT_NEAR(decode->wait.count(), 6.002, kExact);
  EXPECT_NEAR(decode->decode.count(), 10 + 3 + 1e-3 * (1004 + 101), kExact);
  EXPECT_NEAR(decode->externality.count(), 2 * 1.101, kExact);

  const auto p = JoinDisaggregated(request, kv_, *prefill, *decode, link_, 1);
  // 2 + 7 blocks * 10 layers * 0.01 + 10000 bytes = 12.7 ms, a tenth of which is exposed.
  EXPECT_NEAR(p.stages.transfer.count(), 1.27, kExact);
  EXPECT_NEAR(p.ttft.count(), 6.5 + 20, kExact);
  EXPECT_NEAR(p.e2e.count(), 26.5 + 1.27 + 6.002 + 14.105, kExact);
  EXPECT_NEAR(p.tpot.count(), 1.27 + 6.002 + 14.105, kExact);
}

TEST_F(PlacementModelTest, AHandOffTakesTimeBesideItsBytes) {
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 3};
  const auto prefill = ForecastPrefill(IdlePrefill(), request, 0);
  const auto decode = ForecastDecode(Idle(), request, 0, ModelTime(20));
  const auto without = JoinDisaggregated(request, kv_, *prefill, *decode, link_, 1);
  kv_.hand_off = ModelTime(0.5);
  const auto with = JoinDisaggregated(request, kv_, *prefill, *decode, link_, 1);
  EXPECT_NEAR(with.stages.transfer.count(), without.stages.transfer.count() + 0.5, kExact);
  EXPECT_NEAR(with.tpot.count(), without.tpot.count() + 0.25, kExact);
  EXPECT_NEAR(with.ttft.count(), without.ttft.count(), kExact);
  EXPECT_EQ(with.hand_off.count(), 0.5);
}

TEST_F(PlacementModelTest, ABusyPrefillWorkerDrainsWhileTheDecodeWorkerHasNoRoom) {
  WorkerState busy = IdlePrefill();
  busy.waiting = {{.new_tokens = 400}};
  const RequestShape request = {.prompt_tokens = 112, .output_tokens = 2};
  const auto prefill = ForecastPrefill(busy, request, 0);
  EXPECT_NEAR(prefill->queue.count(), 25, kExact) << "half of a step of 400 tokens";
  WorkerState full = Idle();
  full.max_sequences = 1;
  full.decoding = {{.context_tokens = 100, .remaining_tokens = 5}};
  const auto decode = ForecastDecode(full, request, 0, ModelTime(0));
  EXPECT_NEAR(decode->admission.count(), 61.06, kExact);
  const auto p = JoinDisaggregated(request, kv_, *prefill, *decode, link_, 1);
  EXPECT_NEAR(p.stages.queue.count(), 0, kExact);
  EXPECT_NEAR(p.ttft.count(), 61.06 + prefill->prefill.count(), kExact);
}

// They leave with their first token, so that the pool need not hold the 700 tokens of the output as
// well.
TEST_F(PlacementModelTest, PromptsAtAPrefillWorkerNeedNoRoomForTheirOutputs) {
  WorkerState busy = IdlePrefill();
  busy.available_kv_tokens = 1000;
  busy.waiting = {{.new_tokens = 400, .output_tokens = 700}};
  const auto prefill = ForecastPrefill(busy, {.prompt_tokens = 112, .output_tokens = 2}, 0);
  ASSERT_TRUE(prefill.has_value());
  EXPECT_NEAR(prefill->queue.count(), 25, kExact) << "half of a step of 400 tokens";
}

TEST_F(PlacementModelTest, WhatTheDecodeWorkerHasCachedIsNotMoved) {
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 2};
  const auto prefill = ForecastPrefill(IdlePrefill(), request, 0);
  const auto decode = ForecastDecode(Idle(), request, 80, ModelTime(20));
  // 20 tokens in 2 blocks: 2 + 0.2 + 2 = 4.2 ms, of which the tenth is exposed.
  EXPECT_NEAR(JoinDisaggregated(request, kv_, *prefill, *decode, link_, 1).stages.transfer.count(),
              0.42, kExact);
  const auto all = ForecastDecode(Idle(), request, 100, ModelTime(20));
  EXPECT_EQ(JoinDisaggregated(request, kv_, *prefill, *all, link_, 1).stages.transfer.count(), 0);
}

// 40 tokens in 3 blocks: 2 + 0.3 + 4 = 6.3 ms, which begin when the prompt is computed.
TEST_F(PlacementModelTest, WhatAnEvictedPromptKeepsIsMovedAfterItAndReadByItsDecodes) {
  const RequestShape whole = {.prompt_tokens = 100, .output_tokens = 2};
  RequestShape evicted = whole;
  evicted.evicted_tokens = 60;
  const auto prefill = ForecastPrefill(IdlePrefill(), evicted, 0);
  ASSERT_TRUE(prefill.has_value());
  EXPECT_NEAR(prefill->prefill.count(), 20, kExact) << "all of it is computed";
  const auto decode = ForecastDecode(Idle(), evicted, 80, ModelTime(20));
  const auto decode_of_whole = ForecastDecode(Idle(), whole, 0, ModelTime(20));
  ASSERT_TRUE(decode.has_value() && decode_of_whole.has_value());
  EXPECT_EQ(decode->cached_tokens, 0) << "a prefix cache holds whole prompts";
  EXPECT_NEAR(decode_of_whole->decode.count() - decode->decode.count(), 60e-3, kExact);
  const auto p = JoinDisaggregated(evicted, kv_, *prefill, *decode, link_, 1);
  EXPECT_NEAR(p.stages.transfer.count(), 6.3, kExact);
  const auto unified = PredictUnified(Idle(), evicted, 0);
  const auto unified_whole = PredictUnified(Idle(), whole, 0);
  EXPECT_NEAR(unified_whole->stages.decode.count() - unified->stages.decode.count(), 60e-3, kExact);
}

TEST_F(PlacementModelTest, StreamsOnTheSameLinkShareItsBandwidth) {
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 2};
  const auto prefill = ForecastPrefill(IdlePrefill(), request, 0);
  const auto decode = ForecastDecode(Idle(), request, 0, ModelTime(20));
  // 2.7 + 4 * 10 ms: behind 18 ms of the prefill that hide it, 24.7 ms remain.
  EXPECT_NEAR(JoinDisaggregated(request, kv_, *prefill, *decode, link_, 4).stages.transfer.count(),
              24.7, kExact);
}

}  // namespace
}  // namespace tandem::placement_handoff_test
