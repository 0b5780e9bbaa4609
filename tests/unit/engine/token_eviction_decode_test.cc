// Decode workers that get prompts of which some tokens have lost their KV: what arrives, what is
// computed again, and that the answers are those of a unified engine.

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"
#include "tests/support/recording_sink.h"
#include "tests/unit/engine/evicting_requests.h"

namespace tandem::token_eviction_decode_test {
namespace {

using evicting_requests::Answer;
using evicting_requests::AskAlone;
using evicting_requests::Evicted;
using evicting_requests::Evicting;
using evicting_requests::kBlockTokens;
using evicting_requests::kPrompt;
using evicting_requests::kThird;
using evicting_requests::kThirdOfAll;

TEST(TokenEvictionPoolTest, ADecodeWorkerKeepsNothingOfItForOthers) {
  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kLoopback);
  EngineRequest request = Evicting(1, kThird);
  std::vector<int32_t> expected;
  for (uint64_t id = 1; id <= 3; ++id) {
    request.id = RequestId(id);
    if (id == 3) {
      request.eviction.reset();
      expected = AskAlone(request).token_ids;
    } else {
      expected = AskAlone(request).token_ids;
    }
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ((*run)->reservation.cached_tokens, 0);
    pair.Continue(**run);
    ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
    EXPECT_EQ((*run)->token_ids(), expected);
  }
}

// A choice that another worker began is computed behind the evicted prompt. It evicts anew, so its
// answer may be another than that of the lost worker, but it is the same on every route.
TEST(TokenEvictionPoolTest, AnAnswerThatWasBegunElsewhereGoesOn) {
  EngineRequest request = Evicting(1, kThird, kPrompt, 30);
  const std::vector<int32_t> whole = AskAlone(request).token_ids;
  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kLoopback);
  const auto run = pair.Start(request);
  ASSERT_TRUE(run.ok()) << run.status();
  request.so_far = {{.token_ids = {whole.begin(), whole.begin() + 11}}};
  (*run)->request.so_far = request.so_far;
  pair.Continue(**run);
  ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
  EXPECT_EQ((*run)->decode.token_ids(), std::vector(whole.begin() + 11, whole.end()));
  EXPECT_TRUE(pair.decode().AtRest());

  const Answer unified = AskAlone(request);
  EXPECT_EQ(unified.token_ids.size(), 19u);
  EXPECT_EQ(unified.finish.evicted_tokens, Evicted(request));
}

// A decode worker whose sequences are preempted computes their prompts itself, whole at first.
TEST(TokenEvictionPoolTest, ADecodeWorkerComputesEvictedPromptsAgain) {
  HandoffPair pair(
      {.num_blocks = 128, .block_tokens = kBlockTokens},
      {.num_blocks = 32, .block_tokens = kBlockTokens, .prefix_caching = PrefixCaching::kOff},
      Wire::kLoopback);
  std::vector<Disaggregated*> runs;
  for (uint64_t id = 1; id <= 4; ++id) {
    const auto run = pair.Start(Evicting(id, kThird, 90, 60));
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    runs.push_back(*run);
  }
  for (Disaggregated* run : runs) {
    ASSERT_EQ(pair.AwaitEnd(*run), absl::OkStatus());
    EXPECT_EQ(run->token_ids().size(), 60u);
  }
  pair.decode().Settle();
  EXPECT_TRUE(pair.prefill().AtRest());
  EXPECT_TRUE(pair.decode().AtRest());
}

TEST(TokenEvictionPoolTest, ADecodeWorkerThatSetsAllRoomAsideGetsAllTokens) {
  HandoffPair pair({.block_tokens = kBlockTokens}, Wire::kLoopback);
  const EngineRequest request = Evicting(1, kThird);
  EngineRequest whole = request;
  whole.eviction.reset();
  const absl::StatusOr<Reservation> reservation = pair.decode().ReserveFor(whole);
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  EXPECT_EQ(reservation->stored_tokens, kPrompt);
  Recording prefill;
  pair.prefill()->SubmitPrefill(request,
                                {.data_address = pair.decode().transport().address(),
                                 .reservation = reservation->id,
                                 .epoch = reservation->epoch,
                                 .stored_tokens = reservation->stored_tokens},
                                prefill.NewSink());
  const FinishInfo sent = prefill.AwaitFinish();
  EXPECT_TRUE(sent.status.ok()) << sent.status;
  EXPECT_EQ(sent.evicted_tokens, 0);
  EXPECT_GE(sent.kv.wire_bytes, sent.kv.raw_bytes);
}

// What arrives there fits, and so does the whole prompt, but not both. Output is evicted there
// anyway.
TEST(TokenEvictionPoolTest, ADecodeWorkerTakesWhatItCouldNotEvictItself) {
  for (const TokenEviction& eviction : {kThird, kThirdOfAll}) {
    HandoffPair pair(
        {.num_blocks = 128, .block_tokens = kBlockTokens},
        {.num_blocks = 25, .block_tokens = kBlockTokens, .prefix_caching = PrefixCaching::kOff},
        Wire::kLoopback);
    const EngineRequest request = Evicting(1, eviction, kPrompt, 40);
    const auto run = pair.Start(request);
    ASSERT_TRUE(run.ok()) << run.status();
    pair.Continue(**run);
    ASSERT_EQ(pair.AwaitEnd(**run), absl::OkStatus());
    const Answer alone = AskAlone(request);
    EXPECT_EQ((*run)->token_ids(), alone.token_ids);
    EXPECT_EQ((*run)->decode.AwaitFinish().evicted_tokens, alone.finish.evicted_tokens);
    EXPECT_TRUE(pair.decode().AtRest());
  }
}

}  // namespace
}  // namespace tandem::token_eviction_decode_test
