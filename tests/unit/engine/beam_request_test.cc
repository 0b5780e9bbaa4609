// Beam searches as requests: what they hold, how they end, and what is no beginning of one. What
// they find is in beam_search_test and beam_golden_test.

#include <cmath>
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

namespace tandem::beam_request_test {
namespace {

using absl::StatusCode;

constexpr int32_t kVocabSize = 288;

EngineRequest Search(uint64_t id, int32_t prompt_tokens, int32_t max_tokens, int32_t width) {
  EngineRequest request = Greedy(id, RandomPrompt(id, prompt_tokens, kVocabSize), max_tokens);
  request.beams = BeamParams{.width = width};
  request.n = width;
  return request;
}

// The pool holds the blocks of one prompt, eight tails, and the four that eight beams may copy from
// while the copies are made.
TEST(BeamRequestTest, EightBeamsShareOnePrompt) {
  constexpr int32_t kPrompt = 1020;  // 127 full blocks, and 4 tokens of one more
  constexpr int32_t kTokens = 24;
  constexpr int32_t kTailBlocks = (kPrompt + kTokens - 1 + 7) / 8 - 127;
  TestEngine engine(
      {.checkpoint = "models/sample", .num_blocks = 127 + 8 * kTailBlocks + 4, .block_tokens = 8});
  Recording recording;
  engine->Submit(Search(1, kPrompt, kTokens, 8), recording.NewSink());
  const FinishInfo finish = recording.AwaitFinish();
  ASSERT_TRUE(finish.status.ok()) << finish.status;
  EXPECT_EQ(finish.preemptions, 0);
  EXPECT_EQ(recording.choice_ends().size(), 8u);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.prompt_tokens, static_cast<uint64_t>(kPrompt));
  EXPECT_GE(stats.kv.copied_blocks, 7) << "eight beams write where the prompt lies";
  EXPECT_TRUE(engine.AtRest());
}

TEST(BeamRequestTest, SaysNothingBeforeItsEnd) {
  TestEngine engine({});
  engine.gate().Allow(10);
  Recording recording;
  engine->Submit(Search(1, 20, 30, 4), recording.NewSink());
  engine.gate().AwaitHeld();
  EXPECT_TRUE(recording.token_ids().empty());
  EXPECT_TRUE(recording.choice_ends().empty());
  engine.gate().Open();
  ASSERT_TRUE(recording.AwaitFinish().status.ok()) << recording.AwaitFinish().status;
  const std::vector<ChoiceEnd> ends = recording.choice_ends();
  ASSERT_EQ(ends.size(), 4u);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(ends[i].index, i);
    EXPECT_EQ(recording.token_ids(i).size(), 30u);
    EXPECT_NEAR(ends[i].cumulative_logprob / 30, ends[i].score, 1e-5);
    if (i > 0) {
      EXPECT_LE(ends[i].score, ends[i - 1].score);
    }
  }
}

TEST(BeamRequestTest, ACancelGivesEveryBeamsBlocksBack) {
  TestEngine engine({});
  engine.gate().Allow(10);
  Recording recording;
  engine->Submit(Search(1, 20, 30, 4), recording.NewSink());
  engine.gate().AwaitHeld();
  engine->Cancel(RequestId(1), absl::OkStatus());
  engine.gate().Open();
  EXPECT_EQ(recording.AwaitFinish().status.code(), StatusCode::kCancelled);
  EXPECT_TRUE(recording.choice_ends().empty());
  // The engine thread has handled the end of the cancelled one when a later one has ended.
  Recording later;
  engine->Submit(Search(2, 5, 3, 2), later.NewSink());
  EXPECT_TRUE(later.AwaitFinish().status.ok());
  EXPECT_TRUE(engine.AtRest());
}

// Beams are no choices yet: a search has one answer for each only when it is done.
TEST(BeamRequestTest, NoBeamCanBeEndedAlone) {
  TestEngine engine({});
  Recording expected;
  engine->Submit(Search(1, 20, 12, 3), expected.NewSink());
  ASSERT_TRUE(expected.AwaitFinish().status.ok());
  engine.gate().Allow(5);
  Recording recording;
  EngineRequest request = Search(1, 20, 12, 3);
  request.id = RequestId(2);
  engine->Submit(std::move(request), recording.NewSink());
  engine.gate().AwaitHeld();
  engine->EndChoice(RequestId(2), 0);
  engine.gate().Open();
  ASSERT_TRUE(recording.AwaitFinish().status.ok());
  for (int32_t i = 0; i < 3; ++i) EXPECT_EQ(recording.token_ids(i), expected.token_ids(i));
}

TEST(BeamRequestTest, OneTokenEndsAtThePrefillWorker) {
  TestEngine engine({});
  Recording unified;
  engine->Submit(Search(1, 20, 1, 4), unified.NewSink());
  ASSERT_TRUE(unified.AwaitFinish().status.ok());
  HandoffPair pair({}, Wire::kLoopback);
  const auto run = pair.Start(Search(1, 20, 1, 4));
  ASSERT_TRUE(run.ok()) << run.status();
  const FinishInfo finish = (*run)->prefill.AwaitFinish();
  pair.Continue(**run);
  ASSERT_TRUE(pair.AwaitEnd(**run).ok());
  EXPECT_EQ(finish.reason, FinishReason::kLength);
  EXPECT_FALSE((*run)->claimed);
  ASSERT_EQ((*run)->prefill.choice_ends().size(), 4u);
  for (int32_t i = 0; i < 4; ++i) {
    EXPECT_EQ((*run)->prefill.token_ids(i).size(), 1u);
    EXPECT_EQ((*run)->prefill.token_ids(i), unified.token_ids(i));
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

struct BadStart {
  const char* name;
  std::function<void(std::vector<SampledToken>&)> spoil;
};

class BadBeamStartTest : public testing::TestWithParam<BadStart> {};

TEST_P(BadBeamStartTest, IsInvalidArgument) {
  TestEngine decode({.role = Role::kDecode});
  const EngineRequest request = Search(1, 20, 8, 2);
  const auto reservation = decode.ReserveFor(request);
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  std::vector<SampledToken> start = {
      {.token_id = 5, .logprob = -1, .top = {{5, -1}, {6, -2}, {7, -3}, {8, -4}}}};
  GetParam().spoil(start);
  Recording recording;
  decode->SubmitDecode(
      {.request = request, .reservation = reservation->id, .first_tokens = std::move(start)},
      recording.NewSink());
  EXPECT_EQ(recording.AwaitFinish().status.code(), StatusCode::kInvalidArgument)
      << recording.AwaitFinish().status;
  decode->Release(reservation->id);
  decode.Settle();
  EXPECT_TRUE(decode.AtRest());
}

using Start = std::vector<SampledToken>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Starts, BadBeamStartTest,
    testing::Values(
        BadStart{"None", [](Start& start) { start.clear(); }},
        BadStart{"Two", [](Start& start) { start.push_back(start[0]); }},
        BadStart{"TooFewCandidates", [](Start& start) { start[0].top.pop_back(); }},
        BadStart{"TooManyCandidates",
                 [](Start& start) {
                   start[0].top.push_back({9, -5});
                 }},
        BadStart{"NoToken", [](Start& start) { start[0].top[1].token_id = -1; }},
        BadStart{"NoSuchToken", [](Start& start) { start[0].top[1].token_id = kVocabSize; }},
        BadStart{"NoNumber", [](Start& start) { start[0].top[2].logprob = std::nanf(""); }},
        BadStart{"Infinite", [](Start& start) { start[0].top[0].logprob = -kInfinity; }}),
    [](const testing::TestParamInfo<BadStart>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tandem::beam_request_test
