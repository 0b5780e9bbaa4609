// Requests that go on behind tokens that were said elsewhere and end without the rest: ended or
// cancelled while they wait, or refused.

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/unit/engine/resumed_requests.h"

namespace tandem::resume_endings_test {
namespace {

using resumed_requests::EndOf;
using resumed_requests::kOutput;
using resumed_requests::kVocabSize;
using resumed_requests::Resumed;
using resumed_requests::SampledRequest;
using resumed_requests::Undisturbed;
using resumed_requests::Whole;

TEST(ResumeEndTest, AChoiceOrAllOfThemMayEndWhileTheyWait) {
  TestEngine engine({});
  const EngineRequest request = SampledRequest(3);
  const Whole whole = Undisturbed(engine, request);
  engine.gate().Allow(0);
  Recording blocker;
  engine->Submit(Greedy(9, {1, 2}, 1), blocker.NewSink());
  engine.gate().AwaitHeld();
  const EngineRequest resumed = Resumed(request, whole, {2, 3, 4});
  Recording recording;
  engine->Submit(resumed, recording.NewSink());
  engine->EndChoice(request.id, 1);
  engine.gate().Open();
  ASSERT_TRUE(recording.AwaitFinish().status.ok());
  EXPECT_EQ(EndOf(recording, 1).reason, FinishReason::kEnded);
  EXPECT_TRUE(recording.tokens(1).empty());
  EXPECT_EQ(recording.tokens(2).size(), 6u);

  engine.gate().Allow(0);
  Recording second;
  engine->Submit(Greedy(10, {1, 2}, 1), second.NewSink());
  engine.gate().AwaitHeld();
  Recording cancelled;
  engine->Submit(resumed, cancelled.NewSink());
  engine->Cancel(request.id, absl::OkStatus());
  engine.gate().Open();
  EXPECT_EQ(cancelled.AwaitFinish().status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(second.AwaitFinish().status.ok());
  EXPECT_TRUE(engine.AtRest());
}

TEST(ResumeRefusalTest, WhatCannotGoOnIsRefused) {
  TestEngine engine({});
  EngineRequest request = SampledRequest(2);
  request.stop_token_ids = {5};
  const auto refused = [&](std::vector<OutputSoFar> so_far) {
    EngineRequest resumed = request;
    resumed.so_far = std::move(so_far);
    Recording recording;
    engine->Submit(resumed, recording.NewSink());
    return recording.AwaitFinish().status.code() == absl::StatusCode::kInvalidArgument;
  };
  const OutputSoFar good = {.token_ids = {1, 2}};
  const OutputSoFar ended = {.token_ids = {5}, .ended = true};
  EXPECT_TRUE(refused({good})) << "one choice of two";
  EXPECT_TRUE(refused({ended, ended})) << "nothing to do";
  EXPECT_TRUE(refused({good, {.token_ids = {1, 5}}})) << "a stop token";
  EXPECT_TRUE(refused({good, {.token_ids = std::vector<int32_t>(kOutput, 1)}})) << "all is said";
  EXPECT_TRUE(refused({good, {.token_ids = {kVocabSize}}})) << "no such token";
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(refused({good, {.token_ids = {1}, .cumulative_logprob = nan}}));
  request.beams = BeamParams{.width = 2};
  EXPECT_TRUE(refused({good, good})) << "beams";
  request.beams.reset();
  EXPECT_FALSE(refused({good, ended}));
}

// The queue takes the first of two choices and refuses the second: the first must leave it again.
TEST(ResumeRefusalTest, AQueueThatIsFullForOneChoiceKeepsNone) {
  TestEngine engine({.scheduler = {.max_waiting = 1}});
  EngineRequest request = SampledRequest(2);
  request.so_far = {{.token_ids = {1, 2}}, {.token_ids = {3}}};
  Recording recording;
  engine->Submit(request, recording.NewSink());
  EXPECT_EQ(recording.AwaitFinish().status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(engine.AtRest());
  EXPECT_EQ(engine->stats().scheduler.waiting, 0);
  Recording next;
  engine->Submit(Greedy(77, RandomPrompt(1, 20, kVocabSize), 3), next.NewSink());
  EXPECT_TRUE(next.AwaitFinish().status.ok()) << next.AwaitFinish().status;
}

}  // namespace
}  // namespace tandem::resume_endings_test
