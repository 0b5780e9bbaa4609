// What every transport promises (transfer/transport.h) of streams that the receiver refuses, and of
// calls that are misuse. Run over all transports.

#include <span>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/support/transport_fixture.h"
#include "transfer/transport.h"

namespace tandem::transport_refusal_test {
namespace {

class TransportRefusalTest : public TransportFixture {};

// However much comes: nothing of it stays in its way.
TEST_P(TransportRefusalTest, AWorkerThatOnlySendsRefusesStreams) {
  receiver_ = NewTransport(nullptr);
  sender_ = NewTransport(nullptr);
  for (uint64_t stream = 1; stream <= 40; ++stream) {
    SendWhole(stream, 1, 64 << 10);
    EXPECT_EQ(ends_.Wait(stream).code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST_P(TransportRefusalTest, ATransportWithoutReceiverRefuses) {
  Start();
  const auto deaf = NewTransport(nullptr);
  ASSERT_EQ(streams_.Open(*sender_, deaf->address(), 1, kEpoch, Duration::zero(), ends_.Callback()),
            absl::OkStatus());
  ASSERT_EQ(Post(1, 0, 0, Payload(100, 1)), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(TransportRefusalTest, RejectedWhenPrepared) {
  receiver_probe_.prepare_policy = [](const FrameHeader& header) {
    if (header.stream == 1 && header.block == 2) return ResourceExhausted("no room");
    return absl::OkStatus();
  };
  Start();
  SendWhole(1, 300, 20000);
  SendWhole(2, 30, 20000);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kResourceExhausted);
  ExpectArrived(2, 30, 20000);
  // Once refused, the receiver is not asked about the stream again, nor is it committed.
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kPrepare), receiver_probe_.Count(1, Kind::kLanded) + 1);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kLanded), 2);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kCommit), 0);
  EXPECT_EQ(Post(1, 0, 0, Payload(10, 1)), absl::OkStatus()) << "frames after the end are dropped";
  ExpectOneEndEach({1, 2});
}

TEST_P(TransportRefusalTest, RejectedWhenCommitted) {
  receiver_probe_.commit_policy = [](const FrameHeader& header) -> CommitAnswer {
    if (header.stream == 1) return {.status = DataLoss("a gap")};
    return {};
  };
  Start();
  SendWhole(1, 3, 100);
  SendWhole(2, 3, 100);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ends_.Wait(2), absl::OkStatus());
  ExpectOneEndEach({1, 2});
}

TEST_P(TransportRefusalTest, EpochIsCarriedAndCanBeRefused) {
  receiver_probe_.prepare_policy = [](const FrameHeader& header) {
    if (header.epoch == kEpoch) return absl::OkStatus();
    return FailedPrecondition("epoch {}", header.epoch);
  };
  Start();
  const auto payload = Payload(100, 1);
  ASSERT_EQ(streams_.Open(*sender_, receiver_->address(), 1, kEpoch - 1, Duration::zero(),
                          ends_.Callback()),
            absl::OkStatus());
  ASSERT_EQ(streams_.PostOne(*sender_, {1, kEpoch - 1}, {.payload = payload}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(TransportRefusalTest, SameStreamOfTwoEpochsIsTwoStreams) {
  Start();
  EndProbe other;
  ASSERT_EQ(Open(1), absl::OkStatus());
  ASSERT_EQ(streams_.Open(*sender_, receiver_->address(), 1, kEpoch + 1, Duration::zero(),
                          other.Callback()),
            absl::OkStatus());
  streams_.Abort(*sender_, {1, kEpoch + 1});
  EXPECT_EQ(other.Wait(1).code(), absl::StatusCode::kCancelled);
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
}

// Whether the receiver still remembers the refusal depends on whether the first commit was on its
// way already; that the second try ends must not.
TEST_P(TransportRefusalTest, AStreamOpenedAgainAfterARefusalEnds) {
  receiver_probe_.prepare_policy = [](const FrameHeader&) { return Unavailable("not yet"); };
  Start();
  SendWhole(1, 1, 500);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  EndProbe again;
  ASSERT_EQ(
      streams_.Open(*sender_, receiver_->address(), 1, kEpoch, Duration::zero(), again.Callback()),
      absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  const absl::StatusCode code = again.Wait(1).code();
  EXPECT_TRUE(code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kOk) << code;
  ExpectOneEndEach({1});
}

TEST_P(TransportRefusalTest, MisuseIsRefusedAndChangesNothing) {
  Start();
  EXPECT_EQ(streams_.Open(*sender_, "", 1, kEpoch, Duration::zero(), ends_.Callback()).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(Open(1), absl::OkStatus());
  EXPECT_EQ(Open(1).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Post(1, 0, 0, {}).code(), absl::StatusCode::kInvalidArgument);
  std::byte byte{1};
  const std::span<const std::byte> huge(&byte, kMaxPayloadBytes + 1);  // refused unread
  EXPECT_EQ(Post(1, 0, 0, huge).code(), absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
  ExpectOneEndEach({1});
}

TEST_P(TransportRefusalTest, NothingFollowsACommit) {
  absl::Notification release;
  receiver_probe_.commit_policy = [&](const FrameHeader&) -> CommitAnswer {
    release.WaitForNotification();
    return {};
  };
  Start();
  SendWhole(1, 1, 100);
  EXPECT_EQ(Post(1, 0, 1, Payload(100, 1)).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(streams_.Finish(*sender_, {1, kEpoch}).code(), absl::StatusCode::kInternal);
  release.Notify();
  ExpectArrived(1, 1, 100);
}

INSTANTIATE_TEST_SUITE_P(All, TransportRefusalTest, ::testing::ValuesIn(kFabrics), FabricName);

}  // namespace
}  // namespace tandem::transport_refusal_test
