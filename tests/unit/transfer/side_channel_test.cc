// The framed transport where payloads have a side channel beside the bytes: what is announced is
// waited for, a side channel without room or that fails, and peers that name what there is not.
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/lone_streams.h"
#include "tests/support/payload_memory.h"
#include "tests/support/raw_peer.h"
#include "tests/support/side_channel_medium.h"
#include "tests/support/transport_probe.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/framed/outbound.h"
#include "transfer/framed/side_channel_payloads.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem::side_channel_test {
namespace {

using Kind = ReceiverProbe::Call::Kind;
using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 7;
constexpr size_t kPayloadBytes = 3000;

// The host as a device whose copies fail once a test says so.
class FailingDevice final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void Fail() { failing_ = true; }

 private:
  class FailingStream final : public ForwardingStream {
   public:
    FailingStream(std::unique_ptr<Stream> stream, const std::atomic<bool>& failing)
        : ForwardingStream(std::move(stream)), failing_(failing) {}
    absl::Status CopyAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes) override {
      if (failing_) return absl::InternalError("the device fell off the bus");
      return ForwardingStream::CopyAll(copies, hashes);
    }

   private:
    const std::atomic<bool>& failing_;
  };

  std::unique_ptr<Stream> MakeStream(std::unique_ptr<Stream> stream) override {
    return std::make_unique<FailingStream>(std::move(stream), failing_);
  }

  std::atomic<bool> failing_ = false;
};

class SideChannelTest : public testing::Test {
 protected:
  void Start() {
    receiver_ = *NewFramedTransport(options_, NewMedium(), &probe_);
    sender_ = *NewFramedTransport(options_, NewMedium(), nullptr);
  }
  std::unique_ptr<Medium> NewMedium() { return NewSideChannelMedium(*OpenTcpMedium({}), board_); }

  void Send(uint64_t stream, uint32_t count) {
    ASSERT_EQ(streams_.Open(*sender_, receiver_->address(), stream, kEpoch, renew_every_,
                            ends_.Callback()),
              absl::OkStatus());
    for (uint32_t block = 0; block < count; ++block) {
      const std::span<std::byte> payload = payloads_.New(kPayloadBytes);
      payloads_.Write(payload, PatternBytes(kPayloadBytes, stream * 1000 + block));
      ASSERT_EQ(streams_.PostOne(*sender_, {stream, kEpoch}, {.block = block, .payload = payload}),
                absl::OkStatus());
    }
    ASSERT_EQ(streams_.Finish(*sender_, {stream, kEpoch}), absl::OkStatus());
  }
  void ExpectArrived(uint64_t stream, uint32_t count) {
    EXPECT_EQ(ends_.Wait(stream), absl::OkStatus());
    for (uint32_t block = 0; block < count; ++block) {
      EXPECT_EQ(probe_.BytesOf(stream, 0, block),
                PatternBytes(kPayloadBytes, stream * 1000 + block));
    }
  }
  // Whether the receiver closes the connection of a peer that says this.
  bool ClosesOn(const std::vector<FrameHeader>& headers) {
    RawPeer peer = RawPeer::ConnectTo(receiver_->address());
    peer.Greet();
    for (const FrameHeader& header : headers) peer.Send(HeaderBytes(header));
    return peer.IsClosed();
  }
  static FrameHeader Reference(uint32_t payload_bytes, uint64_t place) {
    return {.type = FrameType::kReference,
            .stream = 1,
            .epoch = kEpoch,
            .payload_bytes = payload_bytes,
            .payload_handle = place};
  }

  const Backend cpu_ = *OpenBackend("cpu", {.num_threads = 1});
  FailingDevice device_{*cpu_.device};
  SideChannelBoard board_;
  FramedOptions options_ = {.device = &device_};
  Duration renew_every_ = Duration::zero();
  PayloadMemory payloads_;
  StreamBook streams_;
  EndProbe ends_;
  ReceiverProbe probe_;
  std::unique_ptr<Transport> receiver_;
  std::unique_ptr<Transport> sender_;
};

TEST_F(SideChannelTest, PayloadsOfManyOperationsArrive) {
  Start();
  Send(1, 300);
  Send(2, 10);
  ExpectArrived(1, 300);
  ExpectArrived(2, 10);
  EXPECT_GE(board_.expected(), 310 / 64);
  // Payloads went by the side channel alone, not over the bytes of the connection, too.
  EXPECT_GE(sender_->stats().bytes_sent, 310 * kPayloadBytes);
  EXPECT_LT(sender_->stats().bytes_sent, 310 * kPayloadBytes * 11 / 10);
}

// Sender and receiver work side by side only where not all that may go goes at once.
TEST_F(SideChannelTest, AnOperationIsNoLargerThanIsEnough) {
  board_.SetRoom(64, 3 * kPayloadBytes + 1);
  Start();
  Send(1, 100);
  ExpectArrived(1, 100);
  EXPECT_GE(board_.expected(), 100 / 4);
  EXPECT_EQ(board_.largest_operation(), 4 * kPayloadBytes);
}

TEST_F(SideChannelTest, NothingIsReadBeforeWhatWasAnnouncedHasCome) {
  board_.HoldArrivals();
  Start();
  Send(1, 5);
  ASSERT_TRUE(board_.AwaitExpected(1));
  // Another connection is served meanwhile, by the same thread.
  RawPeer other = RawPeer::ConnectTo(receiver_->address());
  other.Greet();
  other.Send(HeaderBytes({.type = FrameType::kCommit, .stream = 2, .epoch = kEpoch, .block = 1}));
  EXPECT_EQ(other.ReceiveHeader().type, FrameType::kAck);
  EXPECT_EQ(probe_.Count(1, Kind::kPrepare), 0);
  board_.ReleaseArrivals();
  ExpectArrived(1, 5);
}

TEST_F(SideChannelTest, WithoutRoomPayloadsWaitAndRenewalsGoOn) {
  board_.SetRoom(0);
  renew_every_ = std::chrono::milliseconds(1);
  options_.stall_timeout = std::chrono::milliseconds(20);  // no fault of the peer's
  Start();
  Send(1, 5);
  ASSERT_TRUE(probe_.WaitFor(1, Kind::kRenewed, 60));
  EXPECT_EQ(probe_.Count(1, Kind::kPrepare), 0);
  board_.SetRoom(2);
  ExpectArrived(1, 5);
  EXPECT_GE(board_.expected(), 3);
}

TEST_F(SideChannelTest, APeerThatMakesNoRoomIsGivenUp) {
  board_.SetRoom(0);
  board_.BlamePeer();
  renew_every_ = std::chrono::milliseconds(1);  // which is no progress
  options_.stall_timeout = std::chrono::milliseconds(20);
  Start();
  Send(1, 5);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(probe_.Count(1, Kind::kPrepare), 0);
}

TEST_F(SideChannelTest, AnOfferThatFailsEndsTheStreams) {
  board_.FailOffers(Unavailable("the communicator is gone"));
  Start();
  Send(1, 1);
  const absl::Status status = ends_.Wait(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the communicator is gone"));
  board_.FailOffers(absl::OkStatus());
  Send(2, 3);
  ExpectArrived(2, 3);
}

TEST_F(SideChannelTest, AnAnnouncementThatFailsHereIsNoFaultOfThePeers) {
  board_.FailExpects(Unavailable("the communicator is gone"));
  Start();
  Send(1, 1);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(receiver_->stats().refused.malformed, 0u);
  EXPECT_EQ(receiver_->stats().refused.closed, 0u);
}

TEST_F(SideChannelTest, WhoNamesWhatThereIsNotIsClosed) {
  Start();
  EXPECT_TRUE(ClosesOn({Reference(100, 0)})) << "nothing was announced";
  EXPECT_TRUE(ClosesOn({{.type = FrameType::kAnnounce, .payload_bytes = 100}}))
      << "nothing was offered";
  EXPECT_EQ(board_.Push(SideChannelBoard::Bytes(100)), absl::OkStatus());
  EXPECT_TRUE(ClosesOn({{.type = FrameType::kAnnounce, .payload_bytes = 100}, Reference(90, 11)}))
      << "beyond the operation";
  EXPECT_EQ(board_.Push(SideChannelBoard::Bytes(100)), absl::OkStatus());
  EXPECT_TRUE(ClosesOn(
      {{.type = FrameType::kAnnounce, .payload_bytes = 100}, Reference(100, ~uint64_t{0} - 50)}))
      << "a place whose end is beyond all numbers";
  EXPECT_TRUE(
      ClosesOn({{.type = FrameType::kData, .stream = 1, .epoch = kEpoch, .payload_bytes = 100}}))
      << "bytes where payloads have a side channel";
  EXPECT_EQ(receiver_->stats().refused.malformed, 5u);
  EXPECT_EQ(receiver_->stats().refused.closed, 5u);
  EXPECT_EQ(probe_.Count(1, Kind::kPrepare), 0);
  Send(2, 3);
  ExpectArrived(2, 3);
}

TEST_F(SideChannelTest, WithoutASideChannelNothingCanBeNamed) {
  receiver_ = *NewFramedTransport({}, *OpenTcpMedium({}), &probe_);
  EXPECT_TRUE(ClosesOn({Reference(100, 0)}));
  EXPECT_TRUE(ClosesOn({{.type = FrameType::kAnnounce, .payload_bytes = 100}}));
  EXPECT_EQ(receiver_->stats().refused.malformed, 2u);
  EXPECT_TRUE(probe_.calls().empty());
}

TEST_F(SideChannelTest, ADamagedPayloadIsCountedAndDoesNotLand) {
  Start();
  EXPECT_EQ(board_.Push(SideChannelBoard::Bytes(100)), absl::OkStatus());
  RawPeer peer = RawPeer::ConnectTo(receiver_->address());
  peer.Greet();
  peer.Send(HeaderBytes({.type = FrameType::kAnnounce, .payload_bytes = 100}));
  peer.Send(HeaderBytes(Reference(100, 0)));  // its hash is not 0
  ASSERT_TRUE(probe_.WaitFor(1, Kind::kLanded, 1));
  EXPECT_EQ(probe_.CallsOf(1).back().status.code(), absl::StatusCode::kDataLoss);
  peer.Send(HeaderBytes(
      {.type = FrameType::kCommit, .stream = 1, .epoch = kEpoch, .block = 1, .frames = 1}));
  EXPECT_EQ(peer.ReceiveHeader().type, FrameType::kResend);
  EXPECT_EQ(receiver_->stats().refused.corrupted, 1u);
}

TEST_F(SideChannelTest, ADeviceThatFailsLandsNothing) {
  Start();
  device_.Fail();
  Send(1, 3);
  EXPECT_EQ(ends_.Wait(1).code(), absl::StatusCode::kUnavailable);
  sender_.reset();
  receiver_.reset();
  EXPECT_EQ(probe_.Count(1, Kind::kCommit), 0);
  EXPECT_EQ(probe_.Count(1, Kind::kPrepare), probe_.Count(1, Kind::kLanded));
  for (const auto& call : probe_.CallsOf(1)) {
    if (call.kind == Kind::kLanded) {
      EXPECT_EQ(call.status.code(), absl::StatusCode::kUnavailable);
    }
  }
}

// A channel that says nothing and takes everything, or nothing while it is full.
class RecordingChannel final : public ByteChannel {
 public:
  RecordingChannel(std::vector<FrameType>& types, bool keeps_copies)
      : types_(types), side_channel_(keeps_copies) {}

  void SetFull(bool full) { full_ = full; }

  int fd() const override { return -1; }
  bool wants_output() const override { return false; }
  absl::StatusOr<bool> Establish() override { return true; }
  absl::StatusOr<size_t> Read(std::span<const iovec>) override { return 0; }
  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
    if (full_) return 0;
    size_t count = 0;
    for (const iovec& part : parts) {
      EXPECT_EQ(part.iov_len, kFrameHeaderBytes);
      types_.push_back(
          ParseFrameHeader(std::span<const std::byte, kFrameHeaderBytes>(
                               static_cast<const std::byte*>(part.iov_base), kFrameHeaderBytes))
              ->type);
      count += part.iov_len;
    }
    return count;
  }
  SideChannel* side_channel() override { return &side_channel_; }

 private:
  class AnnouncingSideChannel final : public SideChannel {
   public:
    explicit AnnouncingSideChannel(bool keeps_copies) : keeps_copies_(keeps_copies) {}
    Room room(uint64_t) override { return {.payloads = 8, .bytes = 1 << 20}; }
    absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload>) override { return kPayloadBytes; }
    bool keeps_copies() const override { return keeps_copies_; }

   private:
    const bool keeps_copies_;
  };

  std::vector<FrameType>& types_;
  AnnouncingSideChannel side_channel_;
  bool full_ = false;
};

// A connection that is made when the peer has given credit already, and one payload to send.
class OutboundSideChannelTest : public testing::Test {
 protected:
  void Start(bool keeps_copies = false) {
    ASSERT_TRUE(peer_
                    .OnReply({.type = FrameType::kCredit, .frames = 1 << 20},
                             std::chrono::steady_clock::now())
                    .ok());
    auto channel = std::make_unique<RecordingChannel>(types_, keeps_copies);
    channel_ = channel.get();
    auto payloads = NewSideChannelOutbound(*channel);
    connection_.emplace(peer_, std::move(channel), std::move(payloads), counters_, Timeouts());
  }
  std::shared_ptr<OutgoingStream> Send(StreamKey key) {
    auto stream = open_.Open(key);
    peer_.Add(stream, Duration::zero(), std::chrono::steady_clock::now());
    const PostedExtent extent = {.payload = payload_};
    peer_.Post(stream, {&extent, 1});
    peer_.Finish(stream, 1);
    return stream;
  }
  int CountOf(FrameType type) const { return static_cast<int>(std::ranges::count(types_, type)); }

  static constexpr StreamKey kStream = {.stream = 1, .epoch = kEpoch};
  const std::vector<std::byte> payload_ = std::vector<std::byte>(kPayloadBytes);
  LoneStreams open_;
  PeerStreams peer_{9, SendRate(0, Duration::zero()), std::make_shared<Link>("peer", "test"),
                    open_.streams(), [](OutgoingStream&, const absl::Status&) {}};
  std::vector<FrameType> types_;
  TransportCounters counters_;
  RecordingChannel* channel_ = nullptr;
  std::optional<OutboundConnection> connection_;
};

TEST_F(OutboundSideChannelTest, TheHelloGoesBeforeAnnouncementAndReferences) {
  Start();
  Send(kStream);
  ASSERT_TRUE(connection_->Advance().ok());
  EXPECT_EQ(types_, (std::vector<FrameType>{FrameType::kHello, FrameType::kAnnounce,
                                            FrameType::kReference, FrameType::kCommit}));
}

// The receiver says how far it is by what was named: copies that nobody names would take their room
// for ever.
TEST_F(OutboundSideChannelTest, WhatWasCopiedIsNamedThoughItsStreamWasDropped) {
  for (const bool keeps_copies : {false, true}) {
    types_.clear();
    Start(keeps_copies);
    const auto stream = Send(kStream);
    channel_->SetFull(true);
    ASSERT_TRUE(connection_->Advance().ok());
    EXPECT_EQ(peer_.queue().in_flight(), kPayloadBytes);
    connection_->DropStream(kStream);
    // Credit for a payload that is never sent comes back, or the window would shrink with each
    // abort.
    EXPECT_EQ(peer_.queue().in_flight(), keeps_copies ? kPayloadBytes : 0);
    peer_.Drop(*stream);
    open_.streams().End(*stream, absl::OkStatus());
    channel_->SetFull(false);
    ASSERT_TRUE(connection_->Advance().ok());
    EXPECT_EQ(CountOf(FrameType::kReference), keeps_copies ? 1 : 0);
  }
}

}  // namespace
}  // namespace tandem::side_channel_test
