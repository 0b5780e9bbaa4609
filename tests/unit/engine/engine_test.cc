// A unified engine: what it refuses, how requests end, what they leave behind.

#include "engine/engine.h"

#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::engine_test {
namespace {

using absl::StatusCode;

constexpr int32_t kVocabSize = 288;  // llama2 of the goldens

class EngineTest : public testing::Test {
 protected:
  // One engine per test, by its setup.
  TestEngine& Start(const TestEngineSetup& setup = {}) {
    engine_ = std::make_unique<TestEngine>(setup);
    return *engine_;
  }

  Recording& Submit(EngineRequest request) {
    Recording& recording = *recordings_.emplace_back(std::make_unique<Recording>());
    (*engine_)->Submit(std::move(request), recording.NewSink());
    return recording;
  }
  Recording& Submit(uint64_t id, int32_t prompt_tokens, int32_t max_tokens) {
    return Submit(Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), max_tokens));
  }

  void ExpectEnd(const Recording& recording, StatusCode code) {
    EXPECT_EQ(recording.AwaitFinish().status.code(), code) << recording.AwaitFinish().status;
    EXPECT_EQ(recording.num_finishes(), 1);
  }
  FakeClock clock_;
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::unique_ptr<TestEngine> engine_;
};

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

struct Refusal {
  const char* name;
  std::function<void(EngineRequest&)> spoil;
};

class EngineRefusalTest : public EngineTest, public testing::WithParamInterface<Refusal> {};

TEST_P(EngineRefusalTest, SaysSoAndLeavesTheOthersAlone) {
  Start({.max_context_tokens = 64});
  engine_->gate().Allow(1);
  Recording& good = Submit(1, 20, 40);
  engine_->gate().AwaitHeld();
  EngineRequest request = Greedy(2, RandomPrompt(2, 10, kVocabSize), 4);
  GetParam().spoil(request);
  Recording& bad = Submit(std::move(request));
  engine_->gate().Open();
  ExpectEnd(bad, StatusCode::kInvalidArgument);
  EXPECT_FALSE(bad.AwaitFinish().status.message().empty());
  EXPECT_TRUE(bad.token_ids().empty());
  ExpectEnd(good, StatusCode::kOk);
  EXPECT_TRUE(engine_->AtRest());
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineRefusalTest,
    testing::Values(
        Refusal{"EmptyPrompt", [](EngineRequest& r) { r.prompt.clear(); }},
        Refusal{"NegativeToken", [](EngineRequest& r) { r.prompt[3] = -1; }},
        Refusal{"TokenBeyondVocabulary", [](EngineRequest& r) { r.prompt[9] = kVocabSize; }},
        Refusal{"NoTokens", [](EngineRequest& r) { r.max_tokens = 0; }},
        Refusal{"PastTheContext", [](EngineRequest& r) { r.max_tokens = 55; }},
        Refusal{"FarPastTheContext",
                [](EngineRequest& r) { r.max_tokens = std::numeric_limits<int32_t>::max(); }},
        Refusal{"Temperature", [](EngineRequest& r) { r.sampling.temperature = -1; }},
        Refusal{"TopP", [](EngineRequest& r) { r.sampling.top_p = 0; }},
        Refusal{"NoChoice", [](EngineRequest& r) { r.n = 0; }},
        Refusal{"TooManyChoices", [](EngineRequest& r) { r.n = 65; }},
        Refusal{"OneBeam", [](EngineRequest& r) { r.beams = BeamParams{.width = 1}; }},
        Refusal{"FewerBeamsThanN",
                [](EngineRequest& r) {
                  r.n = 3;
                  r.beams = BeamParams{.width = 2};
                }},
        Refusal{"LengthPenalty",
                [](EngineRequest& r) {
                  r.beams = BeamParams{.width = 2, .length_penalty = std::nanf("")};
                }},
        Refusal{"IdInUse", [](EngineRequest& r) { r.id = RequestId(1); }}),
    [](const testing::TestParamInfo<Refusal>& info) { return std::string(info.param.name); });

TEST_F(EngineTest, ARequestForAnotherRoleIsRefused) {
  TestEngine& engine = Start();
  Recording prefill;
  engine->SubmitPrefill(Greedy(1, {1, 2}, 3), {}, prefill.NewSink());
  ExpectEnd(prefill, StatusCode::kFailedPrecondition);
  Recording decode;
  engine->SubmitDecode({.request = Greedy(2, {1, 2}, 3)}, decode.NewSink());
  ExpectEnd(decode, StatusCode::kFailedPrecondition);
  EXPECT_EQ(engine.Reserve(8, 8).status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(engine.AtRest());
}

TEST_F(EngineTest, WhatNeverFitsIsRefusedAndWhatFitsLaterWaits) {
  Start({.num_blocks = 10, .block_tokens = 8});
  ExpectEnd(Submit(100, 70, 20), StatusCode::kInvalidArgument);
  for (uint64_t id = 1; id <= 6; ++id) Submit(id, 40, 20);  // 8 blocks each: one at a time
  for (const auto& recording : recordings_) {
    if (recording == recordings_.front()) continue;
    ExpectEnd(*recording, StatusCode::kOk);
    EXPECT_EQ(recording->token_ids().size(), 20u);
  }
  EXPECT_TRUE(engine_->AtRest());
}

TEST_F(EngineTest, AFullQueueRefuses) {
  TestEngine& engine = Start({.scheduler = {.max_sequences = 1, .max_waiting = 1}});
  engine.gate().Allow(0);
  Recording& runs = Submit(1, 4, 4);
  engine.gate().AwaitHeld();
  Recording& waits = Submit(2, 4, 4);
  Recording& refused = Submit(3, 4, 4);
  engine.gate().Open();
  ExpectEnd(refused, StatusCode::kResourceExhausted);
  ExpectEnd(runs, StatusCode::kOk);
  ExpectEnd(waits, StatusCode::kOk);
  EXPECT_TRUE(engine.AtRest());
}

TEST_F(EngineTest, AFullInboxRefusesAtOnceButNotCancels) {
  TestEngine& engine = Start({.inbox_capacity = 1});
  engine.gate().Allow(0);
  Recording& runs = Submit(1, 4, 200);
  engine.gate().AwaitHeld();
  Recording& inbox = Submit(2, 4, 4);
  Recording& refused = Submit(3, 4, 4);
  EXPECT_TRUE(refused.finished()) << "told on the calling thread";
  ExpectEnd(refused, StatusCode::kResourceExhausted);
  engine->Cancel(RequestId(1), absl::OkStatus());
  engine.gate().Open();
  ExpectEnd(runs, StatusCode::kCancelled);
  ExpectEnd(inbox, StatusCode::kOk);
  EXPECT_TRUE(engine.AtRest());
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

TEST_F(EngineTest, OptionsThatCannotBeAreRefused) {
  const std::unique_ptr<TestModel> model = TestModel::Load("tests/golden/checkpoints/llama2", 1);
  const EngineOptions good = Start()->options();
  const auto create = [&](const std::function<void(EngineOptions&)>& spoil) {
    EngineOptions options = good;
    spoil(options);
    return Engine::Create(options, {.model = model->config,
                                    .device = *model->backend.device,
                                    .ops = *model->backend.ops,
                                    .weights = model->weights.get(),
                                    .clock = clock_})
        .status()
        .code();
  };
  EXPECT_EQ(create([](EngineOptions&) {}), StatusCode::kOk);
  EXPECT_EQ(create([](EngineOptions& o) { o.layout.num_layers = 3; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](EngineOptions& o) { o.layout.block_tokens = 7; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](EngineOptions& o) { o.num_blocks = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](EngineOptions& o) { o.max_context_tokens = 257; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](EngineOptions& o) { o.max_context_tokens = 1; }),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](EngineOptions& o) { o.inbox_capacity = 0; }), StatusCode::kInvalidArgument);
  EXPECT_EQ(create([](EngineOptions& o) { o.scheduler.max_step_tokens = 0; }),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::engine_test
