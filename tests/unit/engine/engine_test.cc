// A unified engine: how requests end, wherever they stand, and what they leave behind.

#include "engine/engine.h"

#include <chrono>
#include <cstdint>
#include <utility>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/unit/engine/engine_fixture.h"

namespace tandem::engine_test {
namespace {

using absl::StatusCode;
using unified_engine::EngineTest;
using unified_engine::kVocabSize;

TEST_F(EngineTest, AnswersWithAsManyTokensAsAsked) {
  Start();
  Recording& recording = Submit(1, 20, 5);
  ExpectEnd(recording, StatusCode::kOk);
  EXPECT_EQ(recording.AwaitFinish().reason, FinishReason::kLength);
  EXPECT_EQ(recording.token_ids().size(), 5u);
  const EngineStats stats = (*engine_)->stats();
  EXPECT_EQ(stats.prompt_tokens, 20u);
  EXPECT_EQ(stats.output_tokens, 5u);
  EXPECT_EQ(stats.steps, 5u);
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(EngineTest, AStopTokenEndsAndIsTheLast) {
  Start();
  Recording& free = Submit(1, 20, 5);
  ExpectEnd(free, StatusCode::kOk);
  EngineRequest request = Greedy(2, RandomPrompt(1, 20, kVocabSize), 5);
  request.stop_token_ids = {kVocabSize - 1, free.token_ids()[2]};
  Recording& stopped = Submit(request);
  ExpectEnd(stopped, StatusCode::kOk);
  EXPECT_EQ(stopped.AwaitFinish().reason, FinishReason::kStop);
  EXPECT_EQ(stopped.token_ids().back(), free.token_ids()[2]);
  EXPECT_LE(stopped.token_ids().size(), 3u);
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(EngineTest, TheWholeContextCanBeUsed) {
  Start({.num_blocks = 32, .block_tokens = 8, .max_context_tokens = 256});
  Recording& recording = Submit(1, 251, 5);
  ExpectEnd(recording, StatusCode::kOk);
  EXPECT_EQ(recording.token_ids().size(), 5u);
}

// Where a request stands when something happens to it.
enum class When { kWaiting, kPrefilling, kDecoding };

class EnginePhaseTest : public EngineTest, public testing::WithParamInterface<When> {
 protected:
  // Brings request 2 into the phase, with a step under way.
  Recording& Bring(TimePoint deadline) {
    TestEngine& engine =
        Start({.scheduler = {.max_prefill_chunk = 8, .max_sequences = 1}, .clock = &clock_});
    engine.gate().Allow(0);
    if (GetParam() == When::kWaiting) Submit(1, 4, 4);
    EngineRequest request = Greedy(2, RandomPrompt(2, 40, kVocabSize), 30);
    request.deadline = deadline;
    Recording& recording = Submit(std::move(request));
    engine.gate().AwaitHeld();
    engine.gate().Allow(GetParam() == When::kDecoding ? 7 : 1);  // 5 chunks, then tokens
    engine.gate().AwaitHeld();
    EXPECT_EQ(recording.token_ids().size(), GetParam() == When::kDecoding ? 3u : 0u);
    return recording;
  }
};

TEST_P(EnginePhaseTest, ACancelEndsIt) {
  Recording& recording = Bring(kNoDeadline);
  (*engine_)->Cancel(RequestId(2), absl::OkStatus());
  engine_->gate().Open();
  ExpectEnd(recording, StatusCode::kCancelled);
  if (GetParam() == When::kWaiting) ExpectEnd(*recordings_.front(), StatusCode::kOk);
  EXPECT_TRUE(engine_->AtRest());
}

TEST_P(EnginePhaseTest, ACancelMayNameAnotherStatus) {
  Recording& recording = Bring(kNoDeadline);
  (*engine_)->Cancel(RequestId(2), absl::UnavailableError("the client is too slow"));
  engine_->gate().Open();
  ExpectEnd(recording, StatusCode::kUnavailable);
}

TEST_P(EnginePhaseTest, ItsDeadlineEndsIt) {
  Recording& recording = Bring(clock_.Now() + std::chrono::seconds(1));
  clock_.Advance(std::chrono::seconds(1));
  engine_->gate().Open();
  ExpectEnd(recording, StatusCode::kDeadlineExceeded);
  if (GetParam() == When::kWaiting) ExpectEnd(*recordings_.front(), StatusCode::kOk);
  EXPECT_TRUE(engine_->AtRest());
}

TEST_P(EnginePhaseTest, AShutdownEndsIt) {
  Recording& recording = Bring(kNoDeadline);
  engine_->Die();
  ExpectEnd(recording, StatusCode::kUnavailable);
  EXPECT_TRUE(engine_->AtRest());
}

INSTANTIATE_TEST_SUITE_P(All, EnginePhaseTest,
                         testing::Values(When::kWaiting, When::kPrefilling, When::kDecoding),
                         [](const testing::TestParamInfo<When>& info) {
                           switch (info.param) {
                             case When::kWaiting:
                               return "Waiting";
                             case When::kPrefilling:
                               return "Prefilling";
                             case When::kDecoding:
                               return "Decoding";
                           }
                           return "";
                         });

TEST_F(EngineTest, ADeadlineInThePastEndsItBeforeAnyWork) {
  Start();
  EngineRequest request = Greedy(1, {1, 2, 3}, 4);
  request.deadline = std::chrono::steady_clock::now();
  ExpectEnd(Submit(std::move(request)), StatusCode::kDeadlineExceeded);
  EXPECT_EQ((*engine_)->stats().steps, 0u);
}

TEST_F(EngineTest, AShutdownWithTimeLetsRequestsEnd) {
  Start();
  for (uint64_t id = 1; id <= 5; ++id) Submit(id, 30, 30);
  (*engine_)->Shutdown(kNoDeadline);
  for (const auto& recording : recordings_) {
    EXPECT_TRUE(recording->finished());
    EXPECT_EQ(recording->token_ids().size(), 30u);
  }
  EXPECT_TRUE(engine_->AtRest());
  Recording& late = Submit(6, 4, 4);
  EXPECT_TRUE(late.finished());
  ExpectEnd(late, StatusCode::kUnavailable);
  (*engine_)->Shutdown(kNoDeadline);
}

TEST_F(EngineTest, AFailingStepEndsItsRequestsAlone) {
  TestEngine& engine = Start();
  engine.gate().Allow(0);
  Submit(1, 10, 4);
  engine.gate().AwaitHeld();
  Submit(2, 10, 4);
  engine.gate().Allow(1);
  engine.gate().AwaitHeld();  // both are in this one
  engine.gate().FailNext(absl::InternalError("out of luck"));
  engine.gate().Open();
  for (const auto& recording : recordings_) ExpectEnd(*recording, StatusCode::kInternal);
  ExpectEnd(Submit(3, 10, 4), StatusCode::kOk);
  EXPECT_TRUE(engine.AtRest());
}

TEST_F(EngineTest, PriorityGoesFirst) {
  TestEngine& engine = Start({.scheduler = {.max_sequences = 1}});
  engine.gate().Allow(0);
  Submit(1, 4, 2);
  engine.gate().AwaitHeld();
  Recording& low = Submit(2, 4, 30);
  EngineRequest urgent = Greedy(3, {1, 2, 3}, 2);
  urgent.priority = 5;
  Recording& high = Submit(std::move(urgent));
  engine.gate().Allow(4);  // the rest of 1, then one request of two tokens
  engine.gate().AwaitHeld();
  EXPECT_TRUE(high.finished());
  EXPECT_TRUE(low.token_ids().empty());
  engine.gate().Open();
  ExpectEnd(low, StatusCode::kOk);
}

TEST_F(EngineTest, StagesAddUp) {
  TestEngine& engine = Start();
  const TimePoint before = std::chrono::steady_clock::now();
  Recording& recording = Submit(1, 100, 2);
  ASSERT_TRUE(recording.AwaitTokens(1));
  const Duration elapsed = std::chrono::steady_clock::now() - before;
  const StageTimes stages = recording.first_stages();
  EXPECT_GE(stages.queue.count(), 0);
  EXPECT_GT(stages.prefill.count(), 0);
  EXPECT_EQ(stages.transfer.count(), 0);
  EXPECT_GT(stages.first_token.count(), 0);
  EXPECT_LE(stages.queue + stages.prefill + stages.first_token, elapsed);
  ExpectEnd(recording, StatusCode::kOk);
  EXPECT_TRUE(engine.AtRest());
}

}  // namespace
}  // namespace tandem::engine_test
