// What every transport promises (transfer/transport.h), run over all of them.
#include "transfer/transport.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/transport_fixture.h"

namespace tandem {
namespace {

class TransportTest : public TransportFixture {};

TEST_P(TransportTest, FramesArriveWholeAndInOrder) {
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

TEST_P(TransportTest, ExtentsPostedTogetherArriveInTheirOrder) {
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

TEST_P(TransportTest, APostThatFailsQueuesNoneOfItsExtents) {
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
TEST_P(TransportTest, CreditBoundsWhatWasPostedTogether) {
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

TEST_P(TransportTest, ManyStreamsShareAConnection) {
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
  EXPECT_EQ(sender_->bytes_sent(), receiver_->bytes_received());
  EXPECT_GE(sender_->bytes_sent(), sender_->links().front().payload_bytes);
}

// The receiver is held until both streams are queued: from then on they take turns by the frame,
// and the short one is through after as many of the long one as it has itself, beside what was
// under way. Told by counts: time says nothing of whose turn it is.
TEST_P(TransportTest, AShortStreamIsNotHeldUpByALongOneThatBeganBefore) {
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
  ExpectOneEndEach({1, 2});
}

TEST_P(TransportTest, LargeAndTinyPayloads) {
  MakeRoomFor(8 << 20);
  Start();
  SendWhole(1, 2, 8 << 20);
  SendWhole(2, 200, 1);
  SendWhole(3, 3, (1 << 20) + 13);
  ExpectArrived(1, 2, 8 << 20);
  ExpectArrived(2, 200, 1);
  ExpectArrived(3, 3, (1 << 20) + 13);
}

TEST_P(TransportTest, StreamWithoutFramesCommits) {
  Start();
  SendWhole(1, 0, 0);
  ExpectArrived(1, 0, 0);
}

// However much comes: nothing of it stays in its way.
TEST_P(TransportTest, AWorkerThatOnlySendsRefusesStreams) {
  receiver_ = NewTransport(nullptr);
  sender_ = NewTransport(nullptr);
  for (uint64_t stream = 1; stream <= 40; ++stream) {
    SendWhole(stream, 1, 64 << 10);
    EXPECT_EQ(ends_.Wait(stream).code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST_P(TransportTest, RejectedWhenPrepared) {
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

TEST_P(TransportTest, RejectedWhenCommitted) {
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

TEST_P(TransportTest, EpochIsCarriedAndCanBeRefused) {
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

TEST_P(TransportTest, SameStreamOfTwoEpochsIsTwoStreams) {
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

// The receiver is held, so that frames of both streams are queued and one is half-way when stream 1
// is aborted. The payloads of stream 1 change right after: what lands must be from before, or not be
// reported. The answer timeout is so long that the held receiver is never taken for a silent one,
// of which an aborted stream would end with UNAVAILABLE.
TEST_P(TransportTest, AbortLetsGoOfPayloadsAndSparesOtherStreams) {
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
TEST_P(TransportTest, AbortInTheMiddleOfWhatWasPostedTogether) {
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

TEST_P(TransportTest, CallsOnAStreamThatHasEndedDoNothing) {
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

// Whether the receiver still remembers the refusal depends on whether the first commit was on its
// way already; that the second try ends must not.
TEST_P(TransportTest, AStreamOpenedAgainAfterARefusalEnds) {
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

TEST_P(TransportTest, CallbacksMayUseTheTransport) {
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

TEST_P(TransportTest, LossOfTheReceiverEndsItsStreams) {
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

TEST_P(TransportTest, LossOfTheSenderGivesLandingPlacesBack) {
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

TEST_P(TransportTest, NobodyAtTheAddress) {
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

TEST_P(TransportTest, AConnectionIsMadeAnewAfterALoss) {
  Start();
  SendWhole(1, 2, 1000);
  ExpectArrived(1, 2, 1000);
  EXPECT_EQ(receiver_probe_.Count(1, Kind::kLanded), 2);
  receiver_ = NewTransport(&receiver_probe_);
  SendWhole(2, 2, 1000);
  ExpectArrived(2, 2, 1000);
}

TEST_P(TransportTest, MisuseIsRefusedAndChangesNothing) {
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

TEST_P(TransportTest, NothingFollowsACommit) {
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

TEST_P(TransportTest, ATransportWithoutReceiverRefuses) {
  Start();
  const auto deaf = NewTransport(nullptr);
  ASSERT_EQ(streams_.Open(*sender_, deaf->address(), 1, kEpoch, Duration::zero(), ends_.Callback()),
            absl::OkStatus());
  ASSERT_EQ(Post(1, 0, 0, Payload(100, 1)), absl::OkStatus());
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_P(TransportTest, EveryStreamEndsWhenTheTransportGoes) {
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

INSTANTIATE_TEST_SUITE_P(All, TransportTest, ::testing::ValuesIn(kFabrics), FabricName);

}  // namespace
}  // namespace tandem
