// A request goes on behind tokens that were said elsewhere: the same tokens as undisturbed (P2).

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/support/test_engine.h"
#include "tests/unit/engine/resumed_requests.h"

namespace tandem::resume_test {
namespace {

using resumed_requests::EndOf;
using resumed_requests::GreedyRequest;
using resumed_requests::kOutput;
using resumed_requests::kVocabSize;
using resumed_requests::Resumed;
using resumed_requests::SampledRequest;
using resumed_requests::Undisturbed;
using resumed_requests::Whole;

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

}  // namespace
}  // namespace tandem::resume_test
