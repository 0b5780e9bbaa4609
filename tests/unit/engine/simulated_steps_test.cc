#include "engine/simulated/simulated_steps.h"

#include <limits>
#include <memory>
#include <numeric>

#include "base/status.h"
#include "engine/engine.h"
#include "engine/profile/dummy_steps.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/support/fake_clock.h"
#include "tests/support/recording_sink.h"

namespace tandem::simulated_steps_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 1000;
constexpr int32_t kEos = 7;

// A client of whose tokens each costs the host some time.
class SlowSink final : public TokenSink {
 public:
  SlowSink(std::unique_ptr<TokenSink> sink, FakeClock& clock, Duration host_time)
      : sink_(std::move(sink)), clock_(clock), host_time_(host_time) {}

  void OnTokens(int32_t index, std::span<const SampledToken> tokens,
                const StageTimes& stages) override {
    clock_.Advance(host_time_);
    sink_->OnTokens(index, tokens, stages);
  }
  void OnPromptLogprobs(int32_t first, std::span<const SampledToken> tokens) override {
    sink_->OnPromptLogprobs(first, tokens);
  }
  void OnBeamStart(const SampledToken& first, const StageTimes& stages) override {
    sink_->OnBeamStart(first, stages);
  }
  void OnChoiceEnd(const ChoiceEnd& end) override { sink_->OnChoiceEnd(end); }
  void OnFinish(const FinishInfo& info) override { sink_->OnFinish(info); }

 private:
  const std::unique_ptr<TokenSink> sink_;
  FakeClock& clock_;
  const Duration host_time_;
};

StepModel TestSteps() {
  return *StepModel::Create({.alpha = {.floor_ms = 4, .base_ms = 1, .token_ms = 0.5},
                             .beta = {.buckets = {{.max_sequences = 8, .base_ms = 6}},
                                      .sequence_ms = 0.25,
                                      .context_token_ms = 0.125}});
}

// An engine whose steps move the test's clock, so that its times are exactly those of the model.
class SimulatedStepsTest : public ::testing::Test {
 protected:
  SimulatedStepsTest() {
    simulated_.steps = TestSteps();
    simulated_.eos_token_ids = {kEos};
    simulated_.wait_until = [this](TimePoint when) {
      const Duration left = when - clock_.Now();
      if (left > Duration::zero()) clock_.Advance(left + overshoot_);
    };
    model_ = {.num_layers = 2,
              .num_kv_heads = 1,
              .head_dim = 8,
              .vocab_size = kVocab,
              .max_position_embeddings = 4096};
  }

  EngineOptions Options() const {
    return {.layout = {.num_layers = 2, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 16},
            .num_blocks = 64,
            .max_context_tokens = 1024,
            .scheduler = {.max_step_tokens = 256, .max_sequences = 8},
            .check_invariants = true};
  }
  absl::Status Create(const EngineOptions& options) {
    absl::StatusOr<std::unique_ptr<Engine>> made =
        Engine::Create(options, {.model = model_,
                                 .device = *backend_.device,
                                 .ops = *backend_.ops,
                                 .simulated = &simulated_,
                                 .clock = clock_});
    RETURN_IF_ERROR(made.status());
    engine_ = *std::move(made);
    return absl::OkStatus();
  }
  static EngineRequest Request(int32_t prompt_tokens, int32_t max_tokens, uint64_t seed = 1) {
    EngineRequest request;
    request.prompt.resize(static_cast<size_t>(prompt_tokens));
    std::iota(request.prompt.begin(), request.prompt.end(), static_cast<int32_t>(seed) * 10);
    request.max_tokens = max_tokens;
    request.sampling.seed = seed;
    request.stop_token_ids = {kEos};
    return request;
  }
  std::unique_ptr<Recording> Submit(EngineRequest request) {
    if (engine_ == nullptr) {
      EXPECT_TRUE(Create(Options()).ok());
    }
    request.id = RequestId(++requests_);
    auto recording = std::make_unique<Recording>();
    engine_->Submit(std::move(request),
                    std::make_unique<SlowSink>(recording->NewSink(), clock_, host_time_));
    return recording;
  }
  // The tokens of one request that runs alone.
  std::vector<int32_t> Run(const EngineRequest& request) {
    const std::unique_ptr<Recording> recording = Submit(request);
    EXPECT_TRUE(recording->AwaitFinish().status.ok());
    return recording->token_ids();
  }
  double MsOf(const EngineRequest& request) {
    const TimePoint began = clock_.Now();
    Run(request);
    return ToMilliseconds(clock_.Now() - began);
  }

  FakeClock clock_;
  Duration overshoot_{};  // of each wait
  Duration host_time_{};  // of each token that is delivered
  uint64_t requests_ = 0;
  ModelConfig model_;
  SimulatedStepsOptions simulated_;
  Backend backend_ = *OpenBackend("cpu", {.num_threads = 1});
  std::unique_ptr<Engine> engine_;
};

// A prompt of 100 tokens takes 1 + 50 ms, and the decodes at contexts of 101 to 104 take 6.25 ms
// and an eighth of a millisecond per token.
constexpr double kRequestMs = 51 + 4 * 6.25 + 0.125 * (101 + 102 + 103 + 104);

TEST_F(SimulatedStepsTest, RequestTakesTheTimeThatItsStepsTakeInTheModel) {
  EXPECT_NEAR(MsOf(Request(100, 5)) / kRequestMs, 1, 1e-6);
  EXPECT_EQ(engine_->stats().steps, 5u);
}

TEST_F(SimulatedStepsTest, SlowdownMultipliesEveryStep) {
  simulated_.slowdown = 3;
  EXPECT_NEAR(MsOf(Request(100, 5)) / kRequestMs, 3, 1e-6);
}

TEST_F(SimulatedStepsTest, LongPromptTakesSeveralSteps) {
  // Chunks of 256, 256 and 88 tokens.
  EXPECT_NEAR(MsOf(Request(600, 1)) / (3 * 1 + 0.5 * 600), 1, 1e-6);
  EXPECT_EQ(engine_->stats().steps, 3u);
}

TEST_F(SimulatedStepsTest, LatenessOfOneStepShortensTheNext) {
  overshoot_ = milliseconds(1);
  // Each of five steps wakes up a millisecond late, and all but the first begin earlier for it.
  EXPECT_NEAR(MsOf(Request(100, 5)), kRequestMs + 1, 1e-3);
}

TEST_F(SimulatedStepsTest, WhatTheHostDoesBetweenStepsIsPartOfTheNextOne) {
  host_time_ = milliseconds(2);
  // Only the last token, which no step follows, costs time of its own.
  EXPECT_NEAR(MsOf(Request(100, 5)), kRequestMs + 2, 1e-3);
}

TEST_F(SimulatedStepsTest, ProcessThatStoodStillDoesNotCatchUp) {
  host_time_ = std::chrono::minutes(1);
  // At most 20 ms of each minute are made up for, which is all of a step of 19 ms.
  EXPECT_NEAR(MsOf(Request(100, 5)), 51 + 5 * 60e3, 1e-3);
  simulated_.slowdown = 10;
  engine_ = nullptr;
  EXPECT_NEAR(MsOf(Request(100, 5)), 10 * kRequestMs - 4 * 20 + 5 * 60e3, 1e-3);
}

TEST_F(SimulatedStepsTest, AStepBeginsWhenTheOneBeforeItEndedUnlessThereWasAPause) {
  const std::unique_ptr<Stream> stream = *backend_.device->NewStream();
  const auto store = *KvStore::Create({.layout = Options().layout, .num_blocks = 64},
                                      *backend_.device, *stream, [] {});
  SimulatedSteps steps({.options = simulated_,
                        .vocab_size = kVocab,
                        .ops = *backend_.ops,
                        .store = *store,
                        .stream = *stream,
                        .clock = clock_});
  const auto dummy = *DummySteps::Create(
      {.max_step_tokens = 64, .max_sequences = 2, .max_context_tokens = 64},
      {.store = *store, .stream = *stream, .computation = steps, .vocab_size = kVocab});
  const auto ms_of_step = [&] {
    const TimePoint began = clock_.Now();
    EXPECT_TRUE(dummy->Run({.sequences = 1, .context_tokens = 64}).ok());
    return ToMilliseconds(clock_.Now() - began);
  };
  constexpr double kStepMs = 6.25 + 0.125 * 64;
  EXPECT_NEAR(ms_of_step(), kStepMs, 1e-3);
  clock_.Advance(milliseconds(4));
  EXPECT_NEAR(ms_of_step(), kStepMs - 4, 1e-3);
  clock_.Advance(milliseconds(4));
  steps.OnPause();
  EXPECT_NEAR(ms_of_step(), kStepMs, 1e-3);
}

// The time that passes while the engine has nothing to do is not made up for by the next step.
TEST_F(SimulatedStepsTest, EngineThatHasNothingToDoPauses) {
  Run(Request(100, 5));
  clock_.Advance(milliseconds(4));
  // The engine's own thread refuses a request whose choices need more blocks than the pool has. In
  // the round that refuses the first one no step is left, so that round has paused before the next
  // round refuses the second one.
  EngineRequest too_wide = Request(600, 400, 2);
  too_wide.n = 8;
  for (int i = 0; i < 2; ++i) {
    const absl::Status refused = Submit(too_wide)->AwaitFinish().status;
    ASSERT_THAT(std::string(refused.message()), HasSubstr("the pool has 64"));
  }
  EXPECT_NEAR(MsOf(Request(100, 5, 3)), kRequestMs, 1e-3);
}

TEST_F(SimulatedStepsTest, TokensFollowFromSeedAndPosition) {
  const std::vector<int32_t> alone = Run(Request(100, 20));
  EXPECT_EQ(alone.size(), 20u);
  EXPECT_NE(Run(Request(100, 20, 2)), alone);
  // Another prompt of the same length, in a batch.
  EngineRequest other = Request(100, 20, 3);
  other.sampling.seed = 1;
  const auto beside = Submit(Request(300, 40, 5));
  const auto recording = Submit(other);
  EXPECT_TRUE(recording->AwaitFinish().status.ok());
  EXPECT_EQ(recording->token_ids(), alone);
  EXPECT_TRUE(beside->AwaitFinish().status.ok());
  for (const int32_t id : alone) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, kVocab);
  }
}

TEST_F(SimulatedStepsTest, ResumedRequestContinuesWithTheSameTokens) {
  const std::vector<int32_t> whole = Run(Request(100, 20));
  EngineRequest resumed = Request(100, 20);
  resumed.so_far = {{.token_ids = {whole.begin(), whole.begin() + 8}}};
  EXPECT_EQ(Run(resumed), std::vector<int32_t>(whole.begin() + 8, whole.end()));
}

TEST_F(SimulatedStepsTest, StopTokensAreNotDrawn) {
  model_.vocab_size = 8;
  EngineRequest request = Request(5, 200);
  request.prompt = {1, 2, 3, 4, 5};
  request.stop_token_ids = {3, kEos};
  const std::vector<int32_t> tokens = Run(request);
  EXPECT_EQ(tokens.size(), 200u);
  EXPECT_THAT(tokens, ::testing::Not(::testing::Contains(3)));
}

TEST_F(SimulatedStepsTest, ChoicesDiffer) {
  EngineRequest request = Request(40, 8);
  request.n = 2;
  const auto recording = Submit(request);
  ASSERT_TRUE(recording->AwaitFinish().status.ok());
  EXPECT_EQ(recording->token_ids(0).size(), 8u);
  EXPECT_EQ(recording->token_ids(0), Run(Request(40, 8)));
  EXPECT_NE(recording->token_ids(0), recording->token_ids(1));
}

TEST_F(SimulatedStepsTest, LogprobsAreReported) {
  EngineRequest request = Request(40, 4);
  request.sampling.num_logprobs = 3;
  const auto recording = Submit(request);
  ASSERT_TRUE(recording->AwaitFinish().status.ok());
  for (const SampledToken& token : recording->tokens()) {
    ASSERT_EQ(token.top.size(), 3u);
    EXPECT_EQ(token.top[0].token_id, token.token_id);
    EXPECT_LE(token.logprob, 0);
    EXPECT_LT(token.top[1].logprob, token.top[0].logprob);
    EXPECT_NE(token.top[1].token_id, token.top[2].token_id);
  }
}

TEST_F(SimulatedStepsTest, BeamSearchEnds) {
  EngineRequest request = Request(40, 6);
  request.beams = BeamParams{.width = 2};
  const auto recording = Submit(request);
  EXPECT_TRUE(recording->AwaitFinish().status.ok());
}

TEST_F(SimulatedStepsTest, OutputEndsAtTheLengthThatItsSeedGives) {
  simulated_.lengths.buckets = {
      {.max_prompt_tokens = 50, .quantiles = {{0, 4}, {1, 4}}},
      {.max_prompt_tokens = 500, .quantiles = {{0, 10}, {0.5, 20}, {1, 40}}}};
  ASSERT_TRUE(simulated_.lengths.Validate().ok());
  const std::vector<int32_t> brief = Run(Request(50, 100));
  ASSERT_EQ(brief.size(), 4u);
  EXPECT_EQ(brief.back(), kEos);
  double sum = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    const size_t length = Run(Request(51, 100, seed)).size();
    EXPECT_EQ(length, *simulated_.lengths.LengthOf(seed, 51));
    sum += static_cast<double>(length);
  }
  EXPECT_NEAR(sum / 40, 22.5, 4);  // of two even parts, 10 to 20 and 20 to 40
  EXPECT_EQ(Run(Request(50, 2)).size(), 2u);
  EngineRequest longer = Request(50, 100);
  longer.constraints.min_tokens = 7;  // and then the EOS
  const std::vector<int32_t> output = Run(longer);
  ASSERT_EQ(output.size(), 8u);
  EXPECT_EQ(output.back(), kEos);
  EngineRequest endless = Request(50, 30);
  endless.stop_token_ids.clear();  // as a client that ignores EOS asks
  EXPECT_EQ(Run(endless).size(), 30u);
}

TEST_F(SimulatedStepsTest, AForcedOutputIsWhatComes) {
  simulated_.lengths.buckets = {{.max_prompt_tokens = 50, .quantiles = {{0, 2}, {1, 2}}}};
  EngineRequest request = Request(40, 3);
  request.stop_token_ids.clear();
  request.constraints.forced_token_ids = {5, kEos, 6};
  EXPECT_EQ(Run(request), std::vector<int32_t>({5, kEos, 6}));
}

TEST_F(SimulatedStepsTest, CachedPromptIsNotComputedAgain) {
  Run(Request(128, 1));
  // 112 of its 128 tokens are in full blocks that both share, with at least one left to compute.
  EXPECT_LT(MsOf(Request(128, 1)), 10);
}

TEST_F(SimulatedStepsTest, StepsWithoutEndAreRefused) {
  simulated_.steps =
      *StepModel::Create({.alpha = {.token_ms = 400}, .beta = {.buckets = {{1, 1}}}});
  EXPECT_THAT(std::string(Create(Options()).message()), HasSubstr("256 prompt tokens"));
  simulated_.steps = TestSteps();
  for (const double slowdown : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN()}) {
    simulated_.slowdown = slowdown;
    EXPECT_THAT(std::string(Create(Options()).message()), HasSubstr("slowdown"));
  }
}

}  // namespace
}  // namespace tandem::simulated_steps_test
