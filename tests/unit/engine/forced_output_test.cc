// An output that is forced is what comes, on every route, in every chunk, behind tokens that
// another worker emitted and after a preemption; and what is said of its tokens is what the model
// finds of them.

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request_checks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::forced_output_test {
namespace {

using ::testing::HasSubstr;
using TokenIds = std::vector<int32_t>;
using Tokens = std::vector<SampledToken>;

constexpr int32_t kVocabSize = 288;
constexpr int32_t kPromptTokens = 90;
constexpr int32_t kOutput = 40;

EngineRequest Forced(uint64_t id, TokenIds prompt, TokenIds output) {
  const auto max_tokens = static_cast<int32_t>(output.size());
  EngineRequest request = Greedy(id, std::move(prompt), max_tokens);
  request.sampling.num_logprobs = 5;
  request.constraints.forced_token_ids = std::move(output);
  return request;
}

TokenIds IdsOf(const Tokens& tokens) {
  TokenIds ids;
  for (const SampledToken& token : tokens) ids.push_back(token.token_id);
  return ids;
}

void ExpectSame(const Tokens& is, const Tokens& was, float tolerance = 0) {
  ASSERT_EQ(IdsOf(is), IdsOf(was));
  for (size_t i = 0; i < is.size(); ++i) {
    SCOPED_TRACE("token " + std::to_string(i));
    EXPECT_NEAR(is[i].logprob, was[i].logprob, tolerance);
    ASSERT_EQ(is[i].top.size(), was[i].top.size());
    for (size_t k = 0; k < is[i].top.size(); ++k) {
      EXPECT_EQ(is[i].top[k].token_id, was[i].top[k].token_id);
      EXPECT_NEAR(is[i].top[k].logprob, was[i].top[k].logprob, tolerance);
    }
  }
}

Tokens Serve(TestEngine& engine, const EngineRequest& request) {
  Recording recording;
  engine->Submit(request, recording.NewSink());
  const FinishInfo finish = recording.AwaitFinish();
  EXPECT_TRUE(finish.status.ok()) << finish.status;
  EXPECT_EQ(finish.reason, FinishReason::kLength);
  return recording.tokens();
}

Tokens ServeAlone(const TestEngineSetup& setup, const EngineRequest& request) {
  TestEngine engine(setup);
  Tokens tokens = Serve(engine, request);
  EXPECT_TRUE(engine.AtRest());
  return tokens;
}

class ForcedOutputTest : public testing::Test {
 protected:
  const TestEngineSetup setup_ = {.num_blocks = 256, .scheduler = {.max_step_tokens = 640}};
  const TokenIds prompt_ = RandomPrompt(9, kPromptTokens, kVocabSize);
  const TokenIds output_ = RandomPrompt(10, kOutput, kVocabSize);
  const EngineRequest request_ = Forced(1, prompt_, output_);
  const Tokens expected_ = ServeAlone(setup_, request_);
};

TEST_F(ForcedOutputTest, TheOutputIsForcedAndNotWhatTheModelWouldSay) {
  EXPECT_EQ(IdsOf(expected_), output_);
  EngineRequest free = request_;
  free.constraints = {};
  EXPECT_NE(IdsOf(ServeAlone(setup_, free)), output_);
  EngineRequest sampled = request_;
  sampled.sampling = {.temperature = 2, .presence_penalty = 2, .seed = 3, .num_logprobs = 5};
  ExpectSame(ServeAlone(setup_, sampled), expected_);
}

TEST_F(ForcedOutputTest, LogprobsAreThoseOfTheSameTokensInAPrompt) {
  constexpr float kTolerance = 1e-3f;
  EngineRequest scored = Greedy(1, prompt_, 1);
  scored.prompt.insert(scored.prompt.end(), output_.begin(), output_.end());
  scored.prompt_logprobs = 5;
  TestEngine engine(setup_);
  Recording recording;
  engine->Submit(scored, recording.NewSink());
  ASSERT_TRUE(recording.AwaitFinish().status.ok());
  const Tokens scores = recording.prompt_logprobs();
  ASSERT_EQ(scores.size(), kPromptTokens + kOutput - 1u);
  ExpectSame(expected_, {scores.begin() + kPromptTokens - 1, scores.end()}, kTolerance);
}

TEST_F(ForcedOutputTest, ComesFromAPrefillAndADecodeWorkerAsFromOne) {
  for (const int32_t chunk : {0, 17}) {
    TestEngineSetup setup = setup_;
    setup.scheduler.max_prefill_chunk = chunk;
    HandoffPair pair(setup, Wire::kLoopback);
    const auto run = pair.Start(request_);
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    ASSERT_TRUE(pair.AwaitEnd(**run).ok());
    EXPECT_EQ((*run)->prefill.tokens().size(), 1u);
    Tokens tokens = (*run)->prefill.tokens();
    for (const SampledToken& token : (*run)->decode.tokens()) tokens.push_back(token);
    EXPECT_EQ(IdsOf(tokens), output_);
    ExpectSame(tokens, expected_);
  }
}

TEST_F(ForcedOutputTest, AnOutputOfOneTokenEndsAtThePrefillWorker) {
  HandoffPair pair(setup_, Wire::kLoopback);
  const auto run = pair.Start(Forced(1, prompt_, {output_[0]}));
  ASSERT_TRUE(run.ok()) << run.status();
  pair.Continue(**run);
  ASSERT_TRUE(pair.AwaitEnd(**run).ok());
  EXPECT_EQ((*run)->token_ids(), TokenIds({output_[0]}));
  ExpectSame((*run)->prefill.tokens(), {expected_[0]});
}

TEST_F(ForcedOutputTest, IsTheSameInChunksOfAnySizeAndBehindACachedPrefix) {
  for (const int32_t chunk : {1, 17, 64}) {
    SCOPED_TRACE("chunk " + std::to_string(chunk));
    TestEngineSetup setup = setup_;
    setup.scheduler.max_prefill_chunk = chunk;
    TestEngine engine(setup);
    for (uint64_t id = 1; id <= 2; ++id) {
      EngineRequest request = request_;
      request.id = RequestId(id);
      const Tokens tokens = Serve(engine, request);
      EXPECT_EQ(IdsOf(tokens), output_);
      ExpectSame(tokens, expected_);
    }
    EXPECT_GT(engine->stats().kv.hit_tokens, 0u);
  }
}

TEST_F(ForcedOutputTest, GoesOnBehindWhatAnotherWorkerEmitted) {
  constexpr int32_t kEmitted = 7;
  EngineRequest request = request_;
  request.so_far = {{.token_ids = {output_.begin(), output_.begin() + kEmitted}}};
  ExpectSame(ServeAlone(setup_, request), {expected_.begin() + kEmitted, expected_.end()});
}

// Some are computed again from the prompt on, others come back from the host.
TEST_F(ForcedOutputTest, IsTheSameWhereSequencesArePreempted) {
  std::vector<EngineRequest> requests;
  for (uint64_t id = 1; id <= 24; ++id) {
    const auto prompt_tokens = static_cast<int32_t>(10 + id * 11 % 90);
    requests.push_back(Forced(id, RandomPrompt(id, prompt_tokens, kVocabSize),
                              RandomPrompt(100 + id, 60, kVocabSize)));
  }
  std::vector<Tokens> expected;
  for (const EngineRequest& request : requests) expected.push_back(ServeAlone(setup_, request));
  for (const int64_t host_bytes : {0, 8 << 20}) {
    TestEngine engine({.num_blocks = 40,
                       .scheduler = {.max_step_tokens = 64, .max_sequences = 24},
                       .host_bytes = host_bytes});
    ExpectShortOutputs(engine);
    std::vector<Recording> recordings(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      engine->Submit(requests[i], recordings[i].NewSink());
    }
    int32_t preemptions = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
      const FinishInfo finish = recordings[i].AwaitFinish();
      ASSERT_TRUE(finish.status.ok()) << finish.status;
      preemptions += finish.preemptions;
      EXPECT_EQ(recordings[i].token_ids(), requests[i].constraints.forced_token_ids);
      ExpectSame(recordings[i].tokens(), expected[i]);
    }
    EXPECT_GT(preemptions, 0);
    EXPECT_TRUE(engine.AtRest());
  }
}

struct BadForced {
  const char* says;
  std::function<void(EngineRequest&)> spoil;
};

TEST_F(ForcedOutputTest, WhatContradictsItIsRefusedByName) {
  const EngineLimits limits = {
      .vocab_size = kVocabSize, .max_context_tokens = 512, .max_width = 16};
  ASSERT_TRUE(CheckRequest(request_, limits).ok()) << CheckRequest(request_, limits);
  const std::vector<BadForced> cases = {
      {"forced_token_ids[2]=288 must be in [0, 288)",
       [](EngineRequest& r) { r.constraints.forced_token_ids[2] = kVocabSize; }},
      {"max_tokens=39 contradicts forced_token_ids, which are 40",
       [](EngineRequest& r) { r.max_tokens = kOutput - 1; }},
      {"max_tokens=0 contradicts forced_token_ids",
       [](EngineRequest& r) {
         r.max_tokens = 0;
         r.prompt_logprobs = 0;
       }},
      {"forced_token_ids are one output: they do not go with 2 choices",
       [](EngineRequest& r) { r.n = 2; }},
      {"forced_token_ids are one output: they do not go with 3 choices or beams",
       [](EngineRequest& r) { r.beams = BeamParams{.width = 3}; }},
      {"stop_token_ids of 1 tokens do not go with forced_token_ids",
       [](EngineRequest& r) { r.stop_token_ids = {3}; }},
      {"min_tokens=1 does not go with forced_token_ids",
       [](EngineRequest& r) { r.constraints.min_tokens = 1; }},
      {"so_far[1] is 5, which is not the one of forced_token_ids", [this](EngineRequest& r) {
         r.constraints.forced_token_ids[1] = 4;
         r.so_far = {{.token_ids = {output_[0], 5}}};
       }}};
  for (const BadForced& one : cases) {
    EngineRequest request = request_;
    one.spoil(request);
    const absl::Status status = CheckRequest(request, limits);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << one.says;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.says));
  }
  DecodeRequest decode{.request = request_, .reservation = ReservationId(1), .first_tokens = {}};
  decode.first_tokens.push_back({.token_id = output_[0], .logprob = -1, .top = {}});
  EXPECT_TRUE(CheckDecode(decode, limits).ok()) << CheckDecode(decode, limits);
  decode.first_tokens[0].token_id = (output_[0] + 1) % kVocabSize;
  EXPECT_THAT(std::string(CheckDecode(decode, limits).message()),
              HasSubstr("which is not the one of forced_token_ids"));
}

}  // namespace
}  // namespace tandem::forced_output_test
