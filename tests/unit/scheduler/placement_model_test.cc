// Predictions for one worker: what a request waits for, its steps, and whom it slows down.

#include "scheduler/latency_model/placement_model.h"

#include "gtest/gtest.h"
#include "scheduler/latency_model/kv_peak.h"
#include "tests/unit/scheduler/placement_model_fixture.h"

namespace tandem::placement_model_test {
namespace {

using placement_model::kExact;
using placement_model::PlacementModelTest;

TEST_F(PlacementModelTest, AnIdleWorkerComputesThePromptAndThenEachToken) {
  const auto p = PredictUnified(Idle(), {.prompt_tokens = 100, .output_tokens = 11}, 0);
  ASSERT_TRUE(p.has_value());
  EXPECT_NEAR(p->stages.queue.count(), 0, kExact);
  EXPECT_NEAR(p->stages.prefill.count(), 20, kExact) << "10 + 0.1 * 100";
  // Ten steps of 11 ms that read 101, 102, ... 110 tokens.
  EXPECT_NEAR(p->stages.decode.count(), 110 + 1.055, kExact);
  EXPECT_NEAR(p->ttft.count(), 20, kExact);
  EXPECT_NEAR(p->tpot.count(), 11.1055, kExact);
  EXPECT_NEAR(p->e2e.count(), 131.055, kExact);
  EXPECT_NEAR(p->externality.count(), 0, kExact) << "nobody decodes beside it";
}

TEST_F(PlacementModelTest, MessagesComeBeforeTheFirstTokenOnBothRoutes) {
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 11};
  WorkerState worker = Idle();
  WorkerState prefill = IdlePrefill();
  const PrefillForecast before = *ForecastPrefill(prefill, request, 0);
  worker.messages_ms = prefill.messages_ms = 3;
  const auto unified = PredictUnified(worker, request, 0);
  EXPECT_NEAR(unified->stages.messages.count(), 3, kExact);
  EXPECT_NEAR(unified->ttft.count(), 23, kExact);
  EXPECT_NEAR(unified->e2e.count(), 134.055, kExact);
  EXPECT_NEAR(unified->tpot.count(), 11.1055, kExact);
  const DecodeForecast decode = *ForecastDecode(Idle(), request, 0, before.prefill);
  const auto without = JoinDisaggregated(request, kv_, before, decode, link_, 1);
  const auto with =
      JoinDisaggregated(request, kv_, *ForecastPrefill(prefill, request, 0), decode, link_, 1);
  EXPECT_NEAR((with.ttft - without.ttft).count(), 3, kExact);
  EXPECT_NEAR((with.e2e - without.e2e).count(), 3, kExact);
}

TEST_F(PlacementModelTest, DecodesThatRunSlowItDownAndAreSlowedDown) {
  const auto p = PredictUnified(TwoDecodes(), {.prompt_tokens = 100, .output_tokens = 2}, 0);
  ASSERT_TRUE(p.has_value());
  // Half of the decode step in progress, which takes 10 + 2 + 0.001 * 1000 = 13 ms.
  EXPECT_NEAR(p->stages.queue.count(), 6.5, kExact);
  EXPECT_NEAR(p->stages.prefill.count(), 13 + 10, kExact);
  // 10 + 3 + 0.001 * (1002 + 101)
  EXPECT_NEAR(p->stages.decode.count(), 14.103, kExact);
  // Two sequences wait 10 ms longer for one token, and 1 + 0.001 * 101 ms for the next.
  EXPECT_NEAR(p->externality.count(), 2 * 10 + 2 * 1.101, kExact);
}

TEST_F(PlacementModelTest, PromptsThatWaitGoFirstAndShareSteps) {
  WorkerState worker = Idle();
  worker.waiting = {{.new_tokens = 400, .output_tokens = 1}};
  worker.charged = {{.new_tokens = 200, .output_tokens = 1}};
  const auto p = PredictUnified(worker, {.prompt_tokens = 100}, 0);
  ASSERT_TRUE(p.has_value());
  // A step of 512 tokens, half of which is over; another of the same size; the third computes the
  // last 88 tokens of those before and the 100 of the request.
  EXPECT_NEAR(p->stages.queue.count(), 30.6 + 61.2, kExact);
  EXPECT_NEAR(p->stages.prefill.count(), 10 + 0.1 * 188, kExact);
  EXPECT_NEAR(p->tpot.count(), 0, kExact) << "there is one token only";
}

TEST_F(PlacementModelTest, AStepThatIsKnownToHaveBegunIsWaitedForToItsEnd) {
  WorkerState worker = TwoDecodes();
  worker.elapsed_ms = 4;
  EXPECT_NEAR(PredictUnified(worker, {.prompt_tokens = 100}, 0)->stages.queue.count(), 13 - 4,
              kExact);
  worker.elapsed_ms = 40;  // its tokens are due
  EXPECT_NEAR(PredictUnified(worker, {.prompt_tokens = 100}, 0)->stages.queue.count(), 0, kExact);
}

TEST_F(PlacementModelTest, PartsOfAPromptThatWereComputedSinceAreNotWaitedForAgain) {
  WorkerState worker = Idle();
  worker.waiting = {{.new_tokens = 1200, .output_tokens = 1}};
  // Steps of 512, 512 and 176 tokens take 61.2, 61.2 and 27.6 ms.
  const auto queue_ms = [&](double elapsed) {
    worker.elapsed_ms = elapsed;
    return PredictUnified(worker, {.prompt_tokens = 400}, 0)->stages.queue.count();
  };
  EXPECT_NEAR(queue_ms(0), 122.4, kExact) << "the third step has room for this prompt";
  EXPECT_NEAR(queue_ms(100), 22.4, kExact);
  EXPECT_NEAR(queue_ms(130), 150 - 130, kExact) << "the third step began without it";
  EXPECT_NEAR(queue_ms(1000), 0, kExact) << "the prompt's first token is due";
}

TEST_F(PlacementModelTest, SeveralChoicesDecodeBesideEachOther) {
  const auto p =
      PredictUnified(Idle(), {.prompt_tokens = 100, .output_tokens = 2, .sequences = 4}, 0);
  EXPECT_NEAR(p->stages.prefill.count(), 20, kExact) << "they share the prompt";
  EXPECT_NEAR(p->stages.decode.count(), 10 + 4 + 1e-3 * 4 * 101, kExact);
}

TEST_F(PlacementModelTest, PromptsBeforeItDecodeBesideIt) {
  WorkerState worker = Idle();
  worker.waiting = {{.new_tokens = 512, .output_tokens = 100}};
  const auto p = PredictUnified(worker, {.prompt_tokens = 100, .output_tokens = 2}, 0);
  ASSERT_TRUE(p.has_value());
  // The first prompt decodes with 513 tokens of context while the second is computed.
  EXPECT_NEAR(p->stages.prefill.count(), 10 + 1 + 0.513 + 0.1 * 100, kExact);
  EXPECT_NEAR(p->stages.decode.count(), 10 + 2 + 1e-3 * (514 + 101), kExact);
}

TEST_F(PlacementModelTest, ACachedPrefixIsNotComputed) {
  const auto p = PredictUnified(Idle(), {.prompt_tokens = 100}, 60);
  EXPECT_NEAR(p->ttft.count(), 10 + 0.1 * 40, kExact);
  const auto whole = PredictUnified(Idle(), {.prompt_tokens = 100}, 100);
  EXPECT_NEAR(whole->ttft.count(), 10 + 0.1, kExact) << "the last token is always computed";
}

TEST_F(PlacementModelTest, ItWaitsForAPlaceUntilASequenceEnds) {
  WorkerState worker = Idle();
  worker.max_sequences = 1;
  worker.decoding = {{.context_tokens = 100, .remaining_tokens = 5}};
  const auto p = PredictUnified(worker, {.prompt_tokens = 100}, 0);
  ASSERT_TRUE(p.has_value());
  // Half a step of 11.1 ms, then five that read 100, ... 104 tokens.
  EXPECT_NEAR(p->stages.queue.count(), 5.55 + 55 + 0.510, kExact);
  EXPECT_NEAR(p->stages.prefill.count(), 20, kExact);
}

TEST_F(PlacementModelTest, ItWaitsForKvUntilASequenceEnds) {
  WorkerState worker = Idle();
  worker.available_kv_tokens = 50;
  worker.decoding = {{.context_tokens = 100, .remaining_tokens = 5}};
  const RequestShape request = {.prompt_tokens = 100, .output_tokens = 11};
  EXPECT_NEAR(PredictUnified(worker, request, 0)->stages.queue.count(), 61.06, kExact);
  worker.available_kv_tokens = 150;  // 250 in all, and the two hold 210 at most
  EXPECT_NEAR(PredictUnified(worker, request, 0)->stages.queue.count(), 5.55, kExact);
  EXPECT_FALSE(PredictUnified(worker, {.prompt_tokens = 300}, 0)) << "it never fits";
}

TEST_F(PlacementModelTest, ThePeakOfKvIsReachedJustBeforeASequenceEnds) {
  EXPECT_EQ(PeakKvTokens({}), 0);
  // At the end of the first: 105 + 45; later the second alone reaches 60.
  EXPECT_EQ(PeakKvTokens({{.context_tokens = 100, .remaining_tokens = 5},
                          {.context_tokens = 40, .remaining_tokens = 20}}),
            150);
  // The second outgrows what both held before.
  EXPECT_EQ(PeakKvTokens({{.context_tokens = 10, .remaining_tokens = 5},
                          {.context_tokens = 40, .remaining_tokens = 200}}),
            240);
}

TEST_F(PlacementModelTest, EachChoiceNeedsAPlace) {
  WorkerState worker = Idle();
  worker.max_sequences = 4;
  worker.decoding = {{.count = 2, .context_tokens = 100, .remaining_tokens = 5}};
  const RequestShape two = {.prompt_tokens = 100, .output_tokens = 2, .sequences = 2};
  const RequestShape three = {.prompt_tokens = 100, .output_tokens = 2, .sequences = 3};
  const RequestShape five = {.prompt_tokens = 100, .output_tokens = 2, .sequences = 5};
  EXPECT_LT(PredictUnified(worker, two, 0)->stages.queue.count(), 12);
  EXPECT_GT(PredictUnified(worker, three, 0)->stages.queue.count(), 60) << "both must have ended";
  EXPECT_FALSE(PredictUnified(worker, five, 0)) << "it never fits";
  worker.decoding.clear();
  worker.waiting = {{.new_tokens = 100, .output_tokens = 6, .sequences = 3}};
  EXPECT_GT(PredictUnified(worker, two, 0)->stages.queue.count(), 60)
      << "the choices of a request that waits need places, too";
}

}  // namespace
}  // namespace tandem::placement_model_test
