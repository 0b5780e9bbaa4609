// What a unified engine refuses: requests that cannot be, that fit nowhere or find a queue full, and
// options that no engine can have.

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "engine/engine.h"
#include "gtest/gtest.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/unit/engine/engine_fixture.h"

namespace tandem::engine_refusals_test {
namespace {

using absl::StatusCode;
using unified_engine::EngineTest;
using unified_engine::kVocabSize;

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
}  // namespace tandem::engine_refusals_test
