// What every transport promises (transfer/transport.h) of frames that arrive: whole, in their
// order, within their credit, and in turns. Run over all transports.

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/support/transport_fixture.h"
#include "transfer/transport.h"

namespace tandem::transport_delivery_test {
namespace {

class TransportDeliveryTest : public TransportFixture {};

TEST_P(TransportDeliveryTest, FramesArriveWholeAndInOrder) {
  Start();
  constexpr uint32_t kCount = 50;
  SendWhole(1, kCount, 3000);
  ExpectArrived(1, kCount, 3000);
  const auto calls = receiver_probe_.CallsOf(1);
  ASSERT_EQ(calls.size(), 2 * kCount + 1);
  EXPECT_EQ(calls.back().kind, Kind::kCommit);
  uint32_t prepared = 0;
  uint32_t landed = 0;
  for (const auto& call : calls) {
    if (call.kind == Kind::kCommit) break;
    EXPECT_EQ(call.header.epoch, kEpoch);
    EXPECT_EQ(call.status, absl::OkStatus());
    EXPECT_EQ(call.header.block, call.kind == Kind::kPrepare ? prepared++ : landed++);
    EXPECT_LE(landed, prepared);
    // Copies by a device are waited for together.
    EXPECT_TRUE(options_.device != nullptr || prepared <= landed + 1);
  }
  EXPECT_EQ(calls.back().header.frames, kCount);
  ExpectOneEndEach({1});
}

TEST_P(TransportDeliveryTest, ExtentsPostedTogetherArriveInTheirOrder) {
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  ASSERT_EQ(PostTogether(1, 0, 40, 3000), absl::OkStatus());
  ASSERT_EQ(PostTogether(1, 40, 40, 3000), absl::OkStatus());
  ASSERT_EQ(PostTogether(1, 40, 50, 3000), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  ExpectArrived(1, 50, 3000);
  uint32_t landed = 0;
  for (const auto& call : receiver_probe_.CallsOf(1)) {
    if (call.kind != Kind::kLanded) continue;
    EXPECT_EQ(call.header.block, landed++);
  }
  EXPECT_EQ(landed, 50u);
  ExpectOneEndEach({1});
}

TEST_P(TransportDeliveryTest, APostThatFailsQueuesNoneOfItsExtents) {
  options_.max_queued_frames = 10;
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  ASSERT_EQ(PostTogether(1, 0, 8, 500), absl::OkStatus());
  EXPECT_EQ(PostTogether(1, 8, 11, 500).code(), absl::StatusCode::kResourceExhausted);
  const PostedExtent with_an_empty_one[] = {{.block = 8, .payload = Payload(500, 1)},
                                            {.block = 9, .payload = {}}};
  EXPECT_EQ(streams_.Post(*sender_, {1, kEpoch}, with_an_empty_one).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(PostTogether(1, 8, 10, 500), absl::OkStatus()) << "there is room for two still";
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  ExpectArrived(1, 10, 500);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kLanded), 10);
  EXPECT_EQ(receiver_probe_.CallsOf(1).back().header.frames, 10u);
  ExpectOneEndEach({1});
}

// The receiver is held, and takes less at a time than was posted at once.
TEST_P(TransportDeliveryTest, CreditBoundsWhatWasPostedTogether) {
  absl::Notification held;
  absl::Notification release;
  receiver_probe_.prepare_policy = [&](const FrameHeader&) {
    if (!held.HasBeenNotified()) {
      held.Notify();
      release.WaitForNotification();
    }
    return absl::OkStatus();
  };
  options_.credit_window_bytes = 10'000;
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  ASSERT_EQ(PostTogether(1, 0, 50, 3000), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  held.WaitForNotification();
  EXPECT_LE(sender_->links().front().bytes_in_flight, 10'000u);
  release.Notify();
  ExpectArrived(1, 50, 3000);
  ExpectOneEndEach({1});
}

TEST_P(TransportDeliveryTest, ManyStreamsShareAConnection) {
  Start();
  constexpr uint64_t kStreams = 24;
  constexpr uint32_t kFrames = 40;
  for (uint64_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_EQ(Open(stream), absl::OkStatus());
  }
  for (uint32_t block = 0; block < kFrames; ++block) {
    for (uint64_t stream = 1; stream <= kStreams; ++stream) {
      const size_t size = 1 + (stream * 977 + block * 331) % 9000;
      ASSERT_EQ(Post(stream, 2, block, Payload(size, stream * 1000 + block)), absl::OkStatus());
    }
  }
  for (uint64_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_EQ(streams_.Finish(*sender_, {stream, kEpoch}), absl::OkStatus());
  }
  for (uint64_t stream = 1; stream <= kStreams; ++stream) {
    EXPECT_EQ(ends_.Wait(stream), absl::OkStatus());
    for (uint32_t block = 0; block < kFrames; ++block) {
      const size_t size = 1 + (stream * 977 + block * 331) % 9000;
      EXPECT_EQ(receiver_probe_.BytesOf(stream, 2, block),
                PatternBytes(size, stream * 1000 + block));
    }
  }
  EXPECT_EQ(ends_.total(), static_cast<int>(kStreams));
  EXPECT_EQ(sender_->stats().bytes_sent, receiver_->stats().bytes_received);
  EXPECT_GE(sender_->stats().bytes_sent, sender_->links().front().payload_bytes);
}

// The receiver is held until the sender has queued both streams: from then on they take turns by
// the frame, and the short one is through after as many of the long one as it has itself, beside
// what was under way. The test counts frames, because times would not say whose turn it was.
TEST_P(TransportDeliveryTest, AShortStreamIsNotHeldUpByALongOneThatBeganBefore) {
  absl::Notification held;
  absl::Notification release;
  receiver_probe_.prepare_policy = [&](const FrameHeader&) {
    if (!held.HasBeenNotified()) {
      held.Notify();
      release.WaitForNotification();
    }
    return absl::OkStatus();
  };
  constexpr size_t kSize = 20'000;
  constexpr int kLong = 300;
  constexpr int kShort = 40;
  constexpr int kUnderWay = 8;
  options_.credit_window_bytes = kUnderWay * kSize;
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  ASSERT_EQ(PostTogether(1, 0, kLong, kSize), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  held.WaitForNotification();
  ASSERT_EQ(Open(2), absl::OkStatus());
  ASSERT_EQ(PostTogether(2, 0, kShort, kSize), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {2, kEpoch}), absl::OkStatus());
  WaitUntilSenderHasTakenCommands(3);
  release.Notify();
  ExpectArrived(2, kShort, kSize);
  ExpectArrived(1, kLong, kSize);
  int of_the_long = 0;
  int of_the_short = 0;
  for (const auto& call : receiver_probe_.calls()) {
    if (call.kind != Kind::kLanded) continue;
    if (call.header.stream == 2 && ++of_the_short == kShort) break;
    if (call.header.stream == 1) ++of_the_long;
  }
  EXPECT_GE(of_the_long, kShort / 2) << "nor does the short one take it all";
  // The long one may be ahead by what was under way before the short one came, and is now.
  EXPECT_LE(of_the_long, kShort + 2 * kUnderWay);
  ExpectOneEndEach({1, 2, 3});
}

TEST_P(TransportDeliveryTest, LargeAndTinyPayloads) {
  MakeRoomFor(8 << 20);
  Start();
  SendWhole(1, 2, 8 << 20);
  SendWhole(2, 200, 1);
  SendWhole(3, 3, (1 << 20) + 13);
  ExpectArrived(1, 2, 8 << 20);
  ExpectArrived(2, 200, 1);
  ExpectArrived(3, 3, (1 << 20) + 13);
}

TEST_P(TransportDeliveryTest, StreamWithoutFramesCommits) {
  Start();
  SendWhole(1, 0, 0);
  ExpectArrived(1, 0, 0);
}

INSTANTIATE_TEST_SUITE_P(All, TransportDeliveryTest, ::testing::ValuesIn(kFabrics), FabricName);

}  // namespace
}  // namespace tandem::transport_delivery_test
