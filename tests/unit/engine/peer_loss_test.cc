// Two engines with a wire between them, one of which dies: each request ends with one clear status
// and the survivor gives everything back.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/handoff_pair.h"

namespace tandem::peer_loss_test {
namespace {

constexpr int32_t kVocabSize = 288;

class PeerLossTest : public testing::TestWithParam<Wire> {
 protected:
  static TestEngineSetup InBlocksOf8() {
    return {.block_tokens = 8, .scheduler = {.max_prefill_chunk = 8}};
  }
  static EngineRequest Request(uint64_t id) {
    return Greedy(id, RandomPrompt(id, 60, kVocabSize), 20);
  }
};

TEST_P(PeerLossTest, TheDecodeWorkerDiesWhileThePromptIsComputed) {
  HandoffPair pair(InBlocksOf8(), GetParam());
  pair.prefill().gate().Allow(3);
  const auto run = pair.Start(Request(1));
  ASSERT_TRUE(run.ok()) << run.status();
  pair.prefill().gate().AwaitHeld();
  pair.decode().Die();
  pair.prefill().gate().Open();
  const FinishInfo end = (*run)->prefill.AwaitFinish();
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable) << end.status;
  EXPECT_TRUE(pair.prefill().AtRest());
}

TEST_P(PeerLossTest, TheDecodeWorkerIsGoneBeforeThePrefillBegins) {
  HandoffPair pair(InBlocksOf8(), GetParam());
  pair.prefill().gate().Allow(0);
  const auto first = pair.Start(Request(1));
  const auto second = pair.Start(Request(2));
  ASSERT_TRUE(first.ok() && second.ok());
  pair.prefill().gate().AwaitHeld();
  pair.decode().Die();
  pair.prefill().gate().Open();
  for (Disaggregated* run : {*first, *second}) {
    EXPECT_EQ(run->prefill.AwaitFinish().status.code(), absl::StatusCode::kUnavailable)
        << run->prefill.AwaitFinish().status;
  }
  EXPECT_TRUE(pair.prefill().AtRest());
}

TEST_P(PeerLossTest, ThePrefillWorkerDiesWhileItSends) {
  TestEngineSetup setup = InBlocksOf8();
  setup.reservation_lease = std::chrono::milliseconds(200);
  HandoffPair pair(setup, GetParam());
  pair.prefill().gate().Allow(3);
  const auto run = pair.Start(Request(1));
  ASSERT_TRUE(run.ok()) << run.status();
  pair.decode()->SubmitDecode({.request = (*run)->request,
                               .reservation = (*run)->reservation.id,
                               .first_tokens = {{.token_id = 5}}},
                              (*run)->decode.NewSink());
  pair.prefill().gate().AwaitHeld();
  pair.prefill().Die();
  EXPECT_EQ((*run)->prefill.AwaitFinish().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ((*run)->decode.AwaitFinish().status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE((*run)->decode.token_ids().empty());
  pair.decode().Settle();
  EXPECT_TRUE(pair.decode().AtRest());
}

TEST_P(PeerLossTest, ThePrefillWorkerDiesAfterTheHandoff) {
  HandoffPair pair(InBlocksOf8(), GetParam());
  pair.decode().gate().Allow(2);
  const auto run = pair.Start(Request(1));
  ASSERT_TRUE(run.ok()) << run.status();
  pair.Continue(**run);
  EXPECT_TRUE((*run)->prefill.AwaitFinish().status.ok());
  pair.decode().gate().AwaitHeld();
  pair.prefill().Die();
  pair.decode().gate().Open();
  EXPECT_TRUE((*run)->decode.AwaitFinish().status.ok());
  EXPECT_EQ((*run)->token_ids().size(), 20u);
  pair.decode().Settle();
  EXPECT_TRUE(pair.decode().AtRest());
}

TEST_P(PeerLossTest, ACancelledPrefillLeavesNothingOnEitherSide) {
  HandoffPair pair(InBlocksOf8(), GetParam());
  pair.prefill().gate().Allow(3);
  const auto run = pair.Start(Request(1));
  ASSERT_TRUE(run.ok()) << run.status();
  pair.prefill().gate().AwaitHeld();
  pair.prefill()->Cancel(RequestId(1), absl::OkStatus());
  pair.prefill().gate().Open();
  EXPECT_EQ((*run)->prefill.AwaitFinish().status.code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(pair.prefill().AtRest());
  pair.decode()->Release((*run)->reservation.id);
  // A later request may be given the same blocks.
  const auto next = pair.Start(Request(2));
  ASSERT_TRUE(next.ok()) << next.status();
  pair.Continue(**next);
  EXPECT_TRUE(pair.AwaitEnd(**next).ok());
  pair.decode().Settle();
  EXPECT_TRUE(pair.decode().AtRest());
}

TEST_P(PeerLossTest, AReleasedReservationRejectsWhatStillComes) {
  HandoffPair pair(InBlocksOf8(), GetParam());
  pair.prefill().gate().Allow(3);
  const auto run = pair.Start(Request(1));
  ASSERT_TRUE(run.ok()) << run.status();
  pair.prefill().gate().AwaitHeld();
  pair.decode()->Release((*run)->reservation.id);
  pair.decode().Settle();
  pair.prefill().gate().Open();
  EXPECT_EQ((*run)->prefill.AwaitFinish().status.code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(pair.prefill().AtRest());
}

INSTANTIATE_TEST_SUITE_P(Wires, PeerLossTest, testing::Values(Wire::kLoopback, Wire::kTcp),
                         [](const testing::TestParamInfo<Wire>& info) {
                           return std::string(info.param == Wire::kTcp ? "Tcp" : "Loopback");
                         });

}  // namespace
}  // namespace tandem::peer_loss_test
