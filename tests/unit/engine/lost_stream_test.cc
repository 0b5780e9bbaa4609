// The stream of a hand-off is lost: it is opened again, what it had is posted again, and after the
// fourth loss the request ends.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/scripted_transport.h"
#include "tests/unit/engine/prefill_handoff_fixture.h"

namespace tandem::lost_stream_test {
namespace {

using absl::StatusCode;
using prefill_handoff::kStream;
using prefill_handoff::PrefillHandoffTest;

// Layer and block of each frame behind the first `skip`.
std::multiset<std::pair<uint32_t, uint32_t>> Places(const std::vector<RecordedFrame>& frames,
                                                    size_t skip) {
  std::multiset<std::pair<uint32_t, uint32_t>> places;
  for (size_t i = skip; i < frames.size(); ++i) places.insert({frames[i].layer, frames[i].block});
  return places;
}

class LostStreamTest : public PrefillHandoffTest, public testing::WithParamInterface<StatusCode> {
 protected:
  absl::Status Loss() const { return absl::Status(GetParam(), "lost"); }
};

TEST_P(LostStreamTest, WhileTransferringItIsOpenedAgainAndAllIsPostedAgain) {
  Start({.block_tokens = 8});
  Prefill(20);
  wire_->AwaitCommit(kStream);
  const std::vector<RecordedFrame> first = wire_->frames();
  wire_->End(kStream, Loss());
  wire_->AwaitCommit(kStream);
  EXPECT_EQ(Places(wire_->frames(), first.size()), Places(first, 0));
  EXPECT_EQ((*engine_)->stats().handoffs, 1);
  wire_->End(kStream, absl::OkStatus());
  ExpectEnd(StatusCode::kOk);
  EXPECT_EQ(recording_.token_ids().size(), 1u) << "the first token is told once";
  const HandoffCounts counts = (*engine_)->stats().handoff_counts;
  EXPECT_EQ(std::pair(counts.sent, counts.retried), std::pair(uint64_t{1}, uint64_t{1}));
}

TEST_P(LostStreamTest, WhileComputingItIsOpenedAgainAndGoesOn) {
  Start({.block_tokens = 8, .scheduler = {.max_prefill_chunk = 8}});
  engine_->gate().Allow(2);
  Prefill(40);
  engine_->gate().AwaitHeld();
  const size_t before = wire_->frames().size();
  ASSERT_GT(before, 0u);
  wire_->End(kStream, Loss());
  engine_->gate().Open();
  wire_->AwaitCommit(kStream);
  std::multiset<std::pair<uint32_t, uint32_t>> all;
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (uint32_t block = 0; block < 5; ++block) all.insert({layer, block});
  }
  // What the step that was under way posted on the lost stream is dropped there.
  const auto after = Places(wire_->frames(), before);
  for (const auto& place : all) EXPECT_GE(after.count(place), 1u);
  wire_->End(kStream, absl::OkStatus());
  ExpectEnd(StatusCode::kOk);
}

// The second loss pauses the stream for 50 ms, in which the last two chunks are computed.
TEST_P(LostStreamTest, BlocksComputedWhileTheStreamIsLostArePostedWhenItIsOpenAgain) {
  Start({.block_tokens = 8, .scheduler = {.max_prefill_chunk = 8}, .clock = &clock_});
  engine_->gate().Allow(1);
  Prefill(40);
  engine_->gate().AwaitHeld();
  for (int loss = 1; loss <= 2; ++loss) {
    wire_->End(kStream, Loss());
    engine_->gate().Allow(1);
    engine_->gate().AwaitHeld();
  }
  EXPECT_EQ(wire_->num_opened(), 2);
  engine_->gate().Allow(1);
  engine_->gate().AwaitHeld();
  const size_t before = wire_->frames().size();
  clock_.Advance(std::chrono::milliseconds(50));
  engine_->gate().Open();
  wire_->AwaitCommit(kStream);
  EXPECT_EQ(wire_->num_opened(), 3);
  const auto after = Places(wire_->frames(), before);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    for (uint32_t block = 0; block < 5; ++block) {
      EXPECT_EQ(after.count({layer, block}), 1u) << "layer " << layer << ", block " << block;
    }
  }
  wire_->End(kStream, absl::OkStatus());
  ExpectEnd(StatusCode::kOk);
}

TEST_P(LostStreamTest, TheFourthLossEndsItWithThePeersName) {
  Start();
  Prefill(40);
  for (int opened = 1; opened <= 4; ++opened) {
    wire_->AwaitOpened(opened);
    wire_->AwaitCommit(kStream);
    wire_->End(kStream, Loss());
  }
  ExpectEnd(GetParam());
  EXPECT_EQ(wire_->num_opened(), 4);
  EXPECT_NE(recording_.AwaitFinish().status.message().find("decode-1:7000"),
            absl::string_view::npos);
  ExpectAlive();
}

TEST_P(LostStreamTest, ACancelWhileItIsLostLeavesNothing) {
  Start();
  Prefill(40);
  wire_->AwaitCommit(kStream);
  wire_->End(kStream, Loss());
  wire_->AwaitCommit(kStream);
  wire_->End(kStream, Loss());  // the second pause is not over at once
  (*engine_)->Cancel(RequestId(1), absl::OkStatus());
  ExpectEnd(StatusCode::kCancelled);
  ExpectAlive();
}

INSTANTIATE_TEST_SUITE_P(Codes, LostStreamTest,
                         testing::Values(StatusCode::kUnavailable, StatusCode::kDataLoss));

}  // namespace
}  // namespace tandem::lost_stream_test
