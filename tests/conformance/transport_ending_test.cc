// What every transport promises (transfer/transport.h) of streams that end early: aborted, or with
// the loss of a side. Run over all transports.

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/transport_fixture.h"
#include "transfer/transport.h"

namespace tandem::transport_ending_test {
namespace {

class TransportEndingTest : public TransportFixture {};

// The receiver is held, so that frames of both streams are queued and one is half-way when stream 1
// is aborted. The payloads of stream 1 change right after: what lands must be from before, or not
// be reported. The answer timeout is so long that the held receiver is never taken for a silent
// one, of which an aborted stream would end with UNAVAILABLE.
TEST_P(TransportEndingTest, AbortLetsGoOfPayloadsAndSparesOtherStreams) {
  absl::Notification held;
  absl::Notification release;
  receiver_probe_.prepare_policy = [&](const FrameHeader&) {
    if (!held.HasBeenNotified()) {
      held.Notify();
      release.WaitForNotification();
    }
    return absl::OkStatus();
  };
  constexpr size_t kSize = 6 << 20;
  MakeRoomFor(kSize);
  options_.answer_timeout = std::chrono::hours(1);
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  ASSERT_EQ(Open(2), absl::OkStatus());
  std::vector<std::span<std::byte>> doomed;
  for (uint32_t block = 0; block < 4; ++block) {
    doomed.push_back(Payload(kSize, 1000 + block));
    ASSERT_EQ(Post(1, 0, block, doomed.back()), absl::OkStatus());
    ASSERT_EQ(Post(2, 0, block, Payload(kSize, 2000 + block)), absl::OkStatus());
  }
  held.WaitForNotification();
  streams_.Abort(*sender_, {1, kEpoch});
  const std::vector<std::byte> other(kSize, std::byte{0xEE});
  for (std::span<std::byte> payload : doomed) payloads_.Write(payload, other);
  release.Notify();
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kCancelled);
  ASSERT_EQ(streams_.Finish(*sender_, {2, kEpoch}), absl::OkStatus());
  ExpectArrived(2, 4, kSize);
  for (const auto& call : receiver_probe_.CallsOf(1)) {
    if (call.kind != Kind::kLanded || !call.status.ok()) continue;
    EXPECT_EQ(receiver_probe_.BytesOf(1, 0, call.header.block),
              PatternBytes(kSize, 1000 + call.header.block));
  }
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kCommit), 0);
  ExpectOneEndEach({1, 2});
}

// Some of what was posted together has gone, the rest has not.
TEST_P(TransportEndingTest, AbortInTheMiddleOfWhatWasPostedTogether) {
  absl::Notification held;
  absl::Notification release;
  receiver_probe_.prepare_policy = [&](const FrameHeader& header) {
    if (header.stream == 1 && !held.HasBeenNotified()) {
      held.Notify();
      release.WaitForNotification();
    }
    return absl::OkStatus();
  };
  constexpr size_t kSize = 60'000;
  constexpr uint32_t kCount = 100;
  options_.credit_window_bytes = 4 * kSize;
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  ASSERT_EQ(Open(2), absl::OkStatus());
  ASSERT_EQ(PostTogether(1, 0, kCount, kSize), absl::OkStatus());
  held.WaitForNotification();
  streams_.Abort(*sender_, {1, kEpoch});
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kCancelled);
  release.Notify();
  ASSERT_EQ(PostTogether(2, 0, kCount, kSize), absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {2, kEpoch}), absl::OkStatus());
  ExpectArrived(2, kCount, kSize);
  EXPECT_LE(receiver_probe_.Count(1, Kind::kPrepare), 4);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kCommit), 0);
  ExpectOneEndEach({1, 2});
}

TEST_P(TransportEndingTest, CallsOnAStreamThatHasEndedDoNothing) {
  Start();
  SendWhole(1, 3, 100);
  EXPECT_EQ(ends_.Wait(1), absl::OkStatus());
  const StreamHandle handle = streams_.Find(*sender_, {1, kEpoch});
  const PostedExtent extent = {.payload = Payload(100, 1)};
  const auto expect_nothing = [&] {
    handle->Abort();
    EXPECT_EQ(handle->Post({&extent, 1}), absl::OkStatus());
    EXPECT_EQ(handle->Finish(), absl::OkStatus());
  };
  expect_nothing();
  // Another opening of the same stream is not touched by the handle of the one before.
  EndProbe second;
  ASSERT_EQ(
      sender_->OpenStream(receiver_->address(), 1, kEpoch, Duration::zero(), second.Callback())
          .status(),
      absl::OkStatus());
  expect_nothing();
  EXPECT_EQ(second.total(), 0);
  ExpectOneEndEach({1});  // closes the transports
  EXPECT_EQ(second.Wait(1).code(), absl::StatusCode::kUnavailable);
  expect_nothing();
}

TEST_P(TransportEndingTest, CallbacksMayUseTheTransport) {
  Start();
  ASSERT_EQ(Open(2), absl::OkStatus());
  ASSERT_EQ(Post(2, 0, 0, Payload(100, 5)), absl::OkStatus());
  ASSERT_EQ(streams_.Open(*sender_, receiver_->address(), 1, kEpoch, Duration::zero(),
                          [&](uint64_t, uint64_t, const absl::Status&) {
                            streams_.Abort(*sender_, {2, kEpoch});
                            EXPECT_EQ(Open(3), absl::OkStatus());
                            EXPECT_EQ(streams_.Finish(*sender_, {3, kEpoch}), absl::OkStatus());
                          }),
            absl::OkStatus());
  ASSERT_EQ(streams_.Finish(*sender_, {1, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(2).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ends_.Wait(3), absl::OkStatus());
  ExpectOneEndEach({2, 3});
}

TEST_P(TransportEndingTest, LossOfTheReceiverEndsItsStreams) {
  absl::Notification held;
  receiver_probe_.prepare_policy = [&](const FrameHeader& header) {
    if (header.stream == 1 && header.block == 1) held.Notify();
    return absl::OkStatus();
  };
  MakeRoomFor(4 << 20);
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  ASSERT_EQ(Open(2), absl::OkStatus());
  for (uint32_t block = 0; block < 8; ++block) {
    ASSERT_EQ(Post(1, 0, block, Payload(4 << 20, block)), absl::OkStatus());
  }
  held.WaitForNotification();
  receiver_.reset();
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ends_.Wait(2).code(), absl::StatusCode::kUnavailable);
  // Every place that was given out was given back.
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kPrepare), receiver_probe_.Count(1, Kind::kLanded));
  ExpectOneEndEach({1, 2});
}

TEST_P(TransportEndingTest, LossOfTheSenderGivesLandingPlacesBack) {
  absl::Notification held;
  absl::Notification release;
  receiver_probe_.prepare_policy = [&](const FrameHeader& header) {
    if (header.block == 1) {
      held.Notify();
      release.WaitForNotification();
    }
    return absl::OkStatus();
  };
  MakeRoomFor(4 << 20);
  Start();
  ASSERT_EQ(Open(1), absl::OkStatus());
  for (uint32_t block = 0; block < 4; ++block) {
    ASSERT_EQ(Post(1, 0, block, Payload(4 << 20, block)), absl::OkStatus());
  }
  held.WaitForNotification();
  sender_.reset();
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  release.Notify();
  ASSERT_TRUE(receiver_probe_.WaitFor(1, Kind::kLanded, 2));
  ExpectOneEndEach({1});
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kPrepare), receiver_probe_.Count(1, Kind::kLanded));
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kCommit), 0);
}

TEST_P(TransportEndingTest, NobodyAtTheAddress) {
  Start();
  const std::string dead = DeadAddress();
  ASSERT_EQ(streams_.Open(*sender_, dead, 1, kEpoch, Duration::zero(), ends_.Callback()),
            absl::OkStatus());
  ASSERT_EQ(Post(1, 0, 0, Payload(100, 1)), absl::OkStatus());
  const absl::Status ended = ends_.Wait(1);
  EXPECT_EQ(ended.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(ended.message()), ::testing::HasSubstr(dead));
  SendWhole(2, 2, 100);
  ExpectArrived(2, 2, 100);
}

TEST_P(TransportEndingTest, AConnectionIsMadeAnewAfterALoss) {
  Start();
  SendWhole(1, 2, 1000);
  ExpectArrived(1, 2, 1000);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kLanded), 2);
  receiver_ = NewTransport(&receiver_probe_);
  SendWhole(2, 2, 1000);
  ExpectArrived(2, 2, 1000);
}

TEST_P(TransportEndingTest, EveryStreamEndsWhenTheTransportGoes) {
  MakeRoomFor(4 << 20);
  Start();
  for (uint64_t stream = 1; stream <= 3; ++stream) {
    ASSERT_EQ(Open(stream), absl::OkStatus());
    ASSERT_EQ(Post(stream, 0, 0, Payload(1 << 20, stream)), absl::OkStatus());
  }
  sender_.reset();
  for (uint64_t stream = 1; stream <= 3; ++stream) {
    EXPECT_EQ(ends_.count(stream), 1);
    EXPECT_EQ(ends_.Wait(stream).code(), absl::StatusCode::kUnavailable);
  }
}

INSTANTIATE_TEST_SUITE_P(All, TransportEndingTest, ::testing::ValuesIn(kFabrics), FabricName);

}  // namespace
}  // namespace tandem::transport_ending_test
