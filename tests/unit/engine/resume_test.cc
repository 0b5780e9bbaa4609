// A request goes on behind tokens that were said elsewhere: the same tokens as undisturbed (P2).

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"

namespace tandem::resume_test {
namespace {

constexpr int32_t kVocabSize = 288;
constexpr int32_t kOutput = 10;

// What a request says undisturbed.
struct Whole {
  std::vector<std::vector<SampledToken>> tokens;  // [choice]
  std::vector<ChoiceEnd> ends;                    // likewise
};

ChoiceEnd EndOf(const Recording& recording, int32_t index) {
  for (const ChoiceEnd& end : recording.choice_ends()) {
    if (end.index == index) return end;
  }
  ADD_FAILURE() << "choice " << index << " did not end";
  return {};
}

Whole Undisturbed(TestEngine& engine, const EngineRequest& request) {
  Recording recording;
  engine->Submit(request, recording.NewSink());
  EXPECT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  Whole whole;
  for (int32_t i = 0; i < request.n; ++i) {
    whole.tokens.push_back(recording.tokens(i));
    whole.ends.push_back(EndOf(recording, i));
  }
  return whole;
}

EngineRequest GreedyRequest() {
  EngineRequest request = Greedy(1, RandomPrompt(3, 21, kVocabSize), kOutput);
  request.sampling.num_logprobs = 3;
  return request;
}

EngineRequest SampledRequest(int32_t n) {
  EngineRequest request = GreedyRequest();
  request.n = n;
  request.sampling = {.temperature = 0.9f,
                      .top_k = 60,
                      .repetition_penalty = 1.2f,
                      .presence_penalty = 0.4f,
                      .frequency_penalty = 0.3f,
                      .seed = 77,
                      .num_logprobs = 3};
  return request;
}

// The request with the first `said` tokens of each choice, as far as it has so many.
EngineRequest Resumed(EngineRequest request, const Whole& whole, const std::vector<int32_t>& said) {
  for (size_t i = 0; i < whole.tokens.size(); ++i) {
    OutputSoFar& so_far = request.so_far.emplace_back();
    for (const SampledToken& token : whole.tokens[i]) {
      if (std::ssize(so_far.token_ids) == said[i]) break;
      so_far.token_ids.push_back(token.token_id);
      so_far.cumulative_logprob += token.logprob;
    }
    so_far.ended = so_far.token_ids.size() == whole.tokens[i].size();
  }
  return request;
}

void ExpectSame(const SampledToken& is, const SampledToken& was) {
  EXPECT_EQ(is.token_id, was.token_id);
  EXPECT_EQ(is.logprob, was.logprob);
  ASSERT_EQ(is.top.size(), was.top.size());
  for (size_t i = 0; i < is.top.size(); ++i) {
    EXPECT_EQ(is.top[i].token_id, was.top[i].token_id);
    EXPECT_EQ(is.top[i].logprob, was.top[i].logprob);
  }
}

void ExpectTheRest(const Recording& recording, const EngineRequest& request, const Whole& whole) {
  ASSERT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  size_t going_on = 0;
  for (int32_t i = 0; i < request.n; ++i) {
    SCOPED_TRACE("choice " + std::to_string(i));
    const OutputSoFar& so_far = request.so_far[i];
    const std::vector<SampledToken> rest = recording.tokens(i);
    ASSERT_EQ(rest.size() + so_far.token_ids.size(), whole.tokens[i].size());
    for (size_t k = 0; k < rest.size(); ++k) {
      ExpectSame(rest[k], whole.tokens[i][so_far.token_ids.size() + k]);
    }
    if (so_far.ended) continue;
    ++going_on;
    const ChoiceEnd end = EndOf(recording, i);
    EXPECT_EQ(end.reason, whole.ends[i].reason);
    EXPECT_EQ(end.cumulative_logprob, whole.ends[i].cumulative_logprob);
  }
  EXPECT_EQ(recording.choice_ends().size(), going_on);
}

// Every position of the output; of several choices each somewhere else, some at their end.
void ForEachPosition(const EngineRequest& request, const Whole& whole, int32_t first,
                     const std::function<void(const EngineRequest&)>& run) {
  for (int32_t position = first; position < kOutput; ++position) {
    std::vector<int32_t> said;
    for (int32_t i = 0; i < request.n; ++i) {
      said.push_back(i == 0 ? position : first + (position + 4 * i) % (kOutput + 1 - first));
    }
    SCOPED_TRACE("at " + std::to_string(position));
    run(Resumed(request, whole, said));
  }
}

struct Setting {
  const char* name;
  int32_t chunk;
  PrefixCaching caching;
};

TestEngineSetup SetupFor(const Setting& setting) {
  return {.num_blocks = 128,
          .scheduler = {.max_prefill_chunk = setting.chunk},
          .prefix_caching = setting.caching};
}

class ResumeTest : public testing::TestWithParam<Setting> {
 protected:
  static std::vector<EngineRequest> Requests() {
    return {GreedyRequest(), SampledRequest(1), SampledRequest(4)};
  }
};

TEST_P(ResumeTest, OnAUnifiedWorkerFromItsPromptOn) {
  for (const EngineRequest& request : Requests()) {
    TestEngine undisturbed({});
    const Whole whole = Undisturbed(undisturbed, request);
    TestEngine engine(SetupFor(GetParam()));
    ForEachPosition(request, whole, 0, [&](const EngineRequest& resumed) {
      Recording recording;
      engine->Submit(resumed, recording.NewSink());
      ExpectTheRest(recording, resumed, whole);
    });
    EXPECT_TRUE(engine.AtRest());
  }
}

TEST_P(ResumeTest, OnADecodeWorkerBehindThePromptsKv) {
  for (const EngineRequest& request : Requests()) {
    TestEngine undisturbed({});
    const Whole whole = Undisturbed(undisturbed, request);
    HandoffPair pair(SetupFor(GetParam()), Wire::kLoopback);
    ForEachPosition(request, whole, 1, [&](const EngineRequest& resumed) {
      const auto run = pair.Start(request);
      ASSERT_TRUE(run.ok()) << run.status();
      ASSERT_TRUE((*run)->prefill.AwaitFirstTokens(static_cast<size_t>(request.n)));
      Recording recording;
      pair.decode()->SubmitDecode({.request = resumed, .reservation = (*run)->reservation.id},
                                  recording.NewSink());
      ExpectTheRest(recording, resumed, whole);
      EXPECT_TRUE((*run)->prefill.AwaitFinish().status.ok());
    });
    pair.decode().Settle();
    EXPECT_TRUE(pair.prefill().AtRest());
    EXPECT_TRUE(pair.decode().AtRest());
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, ResumeTest,
                         testing::Values(Setting{"Whole", 0, PrefixCaching::kOn},
                                         Setting{"Chunks", 5, PrefixCaching::kOn},
                                         Setting{"OneByOne", 1, PrefixCaching::kOff},
                                         Setting{"WithoutCache", 0, PrefixCaching::kOff}),
                         [](const testing::TestParamInfo<Setting>& info) {
                           return std::string(info.param.name);
                         });

// Computes the prompt's KV once and not again: what arrived is gone on from.
TEST(ResumeOnDecodeTest, OnlyWhatWasSaidIsComputed) {
  const EngineRequest request = SampledRequest(1);
  TestEngine undisturbed({});
  const Whole whole = Undisturbed(undisturbed, request);
  HandoffPair pair({.prefix_caching = PrefixCaching::kOff}, Wire::kLoopback);
  const auto run = pair.Start(request);
  ASSERT_TRUE(run.ok());
  const EngineRequest resumed = Resumed(request, whole, {7});
  Recording recording;
  pair.decode()->SubmitDecode({.request = resumed, .reservation = (*run)->reservation.id},
                              recording.NewSink());
  ExpectTheRest(recording, resumed, whole);
  pair.decode().Settle();
  EXPECT_EQ(pair.decode()->stats().prompt_tokens, 7u);
}

// Both choices of a request go on inside the prompt's last block, each with a block of its own. The
// pool is two blocks short of both, so one has to wait, and none fails.
TEST(ResumeOnDecodeTest, AChoiceWithoutRoomForItsOwnPartOfThePromptWaits) {
  constexpr int32_t kBlockTokens = 8;
  const TestEngineSetup setup = {.num_blocks = 9, .block_tokens = kBlockTokens};
  TestEngine undisturbed({});
  HandoffPair pair(setup, Wire::kLoopback);
  // Outputs of two tokens, so that a reservation counts with few.
  for (uint64_t id = 100; id < 112; ++id) {
    EngineRequest request = Greedy(id, RandomPrompt(id, 5, kVocabSize), 14);
    request.stop_token_ids = {Undisturbed(undisturbed, request).tokens[0][1].token_id};
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    ASSERT_TRUE(pair.AwaitEnd(**run).ok());
  }
  EngineRequest request = SampledRequest(2);
  request.prompt = RandomPrompt(3, 20, kVocabSize);  // two blocks and a half
  request.max_tokens = 14;
  const Whole whole = Undisturbed(undisturbed, request);
  const auto other = pair.decode().Reserve(4 * kBlockTokens, 1);
  ASSERT_TRUE(other.ok()) << other.status();
  const auto run = pair.Start(request);
  ASSERT_TRUE(run.ok()) << run.status();
  ASSERT_TRUE((*run)->prefill.AwaitFirstTokens(2));
  const EngineRequest resumed = Resumed(request, whole, {12, 12});
  Recording recording;
  pair.decode()->SubmitDecode({.request = resumed, .reservation = (*run)->reservation.id},
                              recording.NewSink());
  ExpectTheRest(recording, resumed, whole);
  pair.decode()->Release(other->id);
  pair.decode().Settle();
  EXPECT_TRUE(pair.decode().AtRest());
}

TEST(ResumeAgainTest, EachTimeBehindWhatWasSaidByThen) {
  const EngineRequest request = SampledRequest(4);
  TestEngine first({});
  const Whole whole = Undisturbed(first, request);
  EngineRequest now = Resumed(request, whole, {1, 2, 3, 0});
  for (const int64_t steps : {2, 3}) {
    TestEngine engine({});
    engine.gate().Allow(steps);
    Recording recording;
    engine->Submit(now, recording.NewSink());
    engine.gate().AwaitHeld();
    engine.Die();
    for (int32_t i = 0; i < request.n; ++i) {
      for (const SampledToken& token : recording.tokens(i)) {
        now.so_far[i].token_ids.push_back(token.token_id);
        now.so_far[i].cumulative_logprob += token.logprob;
      }
    }
    EXPECT_GE(now.so_far[0].token_ids.size(), 2u);
  }
  TestEngine last({});
  Recording recording;
  last->Submit(now, recording.NewSink());
  ExpectTheRest(recording, now, whole);
}

// Many at once in a pool of a third of what they need: they give way to one another and go on.
TEST(ResumeCrowdedTest, TheSameTokensWhereBlocksAreShort) {
  std::vector<EngineRequest> requests;
  std::vector<Whole> wholes;
  TestEngine undisturbed({.num_blocks = 256});
  for (uint64_t id = 1; id <= 12; ++id) {
    EngineRequest request = SampledRequest(id % 3 == 0 ? 3 : 1);
    request.id = RequestId(id);
    request.prompt = RandomPrompt(id, 20 + static_cast<int32_t>(id), kVocabSize);
    request.max_tokens = 40;
    wholes.push_back(Undisturbed(undisturbed, request));
    requests.push_back(Resumed(request, wholes.back(), {5, 17, 40}));
  }
  TestEngine engine({.num_blocks = 30, .prefix_caching = PrefixCaching::kOff});
  std::vector<Recording> recordings(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    engine->Submit(requests[i], recordings[i].NewSink());
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectTheRest(recordings[i], requests[i], wholes[i]);
  }
  EXPECT_TRUE(engine.AtRest());
}

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
}  // namespace tandem::resume_test
