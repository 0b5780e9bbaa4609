#include "scheduler/latency_model/placement_model.h"

#include <cmath>

#include "gtest/gtest.h"
#include "scheduler/latency_model/kv_peak.h"

namespace tandem::placement_model_test {
namespace {

// A step of prefills takes 10 + 0.1 N ms, one of decodes 10 + B + 0.001 C ms.
class PlacementModelTest : public ::testing::Test {
 protected:
  PlacementModelTest() {
    StepCoefficients c;
    c.alpha = {.floor_ms = 0, .base_ms = 10, .token_ms = 0.1, .pair_ms = 0};
    c.beta = {.buckets = {{.max_sequences = 64, .base_ms = 10}},
              .sequence_ms = 1,
              .context_token_ms = 1e-3};
    steps_ = StepModel::Create(c).value();
  }

  WorkerState Idle() const {
    WorkerState worker;
    worker.steps = &steps_;
    worker.available_kv_tokens = 100000;
    return worker;
  }
  WorkerState TwoDecodes() const {
    WorkerState worker = Idle();
    worker.decoding = {{.count = 2, .context_tokens = 500, .remaining_tokens = 1000}};
    return worker;
  }
  WorkerState IdlePrefill() const {
    WorkerState worker = Idle();
    worker.prefill_ends = PrefillEnds::kInHandOff;
    return worker;
  }

  StepModel steps_;
  LinkModel link_{.setup = ModelTime(2), .operation = ModelTime(0.01), .bytes_per_second = 1e6};
  KvTransferShape kv_{.bytes_per_token = 100, .layers = 10, .block_tokens = 16};
};

constexpr double kExact = 1e-9;

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
}  // namespace tandem::placement_model_test
