// The framed transport between memories of devices: few slots for many, failing copies, what is
// set aside.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/late_device.h"
#include "tests/support/payload_memory.h"
#include "tests/support/transport_probe.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/link_prober.h"
#include "transfer/loopback/loopback_transport.h"
#include "transfer/probe_memory.h"
#include "transfer/probe_receiver.h"
#include "transfer/tcp/tcp_medium.h"

namespace tandem {
namespace {

using Kind = ReceiverProbe::Call::Kind;
using Failure = LateDevice::Failure;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr uint64_t kEpoch = 7;
constexpr size_t kPayloadBytes = 4096;
constexpr size_t kBuffersBytes = 2 * kPayloadBytes;  // two slots

class StagedTransportTest : public testing::Test {
 protected:
  FramedOptions Options(int32_t connections = 1) {
    return {.connections = connections,
            .device = &device_,
            .staged_payload_bytes = kPayloadBytes,
            .staging_bytes = kBuffersBytes};
  }
  std::unique_ptr<Transport> New(const FramedOptions& options, FrameReceiver* receiver) {
    return network_.NewTransport(receiver, options);
  }

  void Open(Transport& sender, const Transport& receiver, uint64_t stream,
            Duration renew_every = Duration::zero()) {
    ASSERT_EQ(sender.OpenStream(receiver.address(), stream, kEpoch, renew_every, ends_.Callback()),
              absl::OkStatus());
  }
  // Of the device.
  std::span<std::byte> Payload(uint64_t stream, uint32_t block) {
    const std::span<std::byte> payload = memory_.New(kPayloadBytes);
    memory_.Write(payload, PatternBytes(kPayloadBytes, stream * 1000 + block));
    return payload;
  }
  void Send(Transport& sender, const Transport& receiver, uint64_t stream, uint32_t count) {
    Open(sender, receiver, stream);
    for (uint32_t block = 0; block < count; ++block) {
      ASSERT_EQ(
          PostOne(sender, {stream, kEpoch}, {.block = block, .payload = Payload(stream, block)}),
          absl::OkStatus());
    }
    ASSERT_EQ(sender.FinishStream(stream, kEpoch), absl::OkStatus());
  }
  void ExpectArrived(const ReceiverProbe& probe, uint64_t stream, uint32_t count) {
    EXPECT_EQ(ends_.Wait(stream), absl::OkStatus());
    for (uint32_t block = 0; block < count; ++block) {
      EXPECT_EQ(probe.BytesOf(stream, 0, block), PatternBytes(kPayloadBytes, stream * 1000 + block))
          << "stream " << stream << " block " << block;
    }
  }
  static int CountLanded(const ReceiverProbe& probe, uint64_t stream) {
    int landed = 0;
    for (const auto& call : probe.CallsOf(stream)) {
      landed += call.kind == Kind::kLanded && call.status.ok();
    }
    return landed;
  }

  LateDevice device_;
  PayloadMemory memory_{&device_};
  LoopbackNetwork network_;
  EndProbe ends_;
};

TEST_F(StagedTransportTest, ManyShareTwoSlots) {
  constexpr int kPeers = 5;
  constexpr uint64_t kStreams = 4;  // to each
  constexpr uint32_t kFrames = 20;
  std::vector<std::unique_ptr<ReceiverProbe>> probes;
  std::vector<std::unique_ptr<Transport>> receivers;
  const auto sender = New(Options(), nullptr);
  for (int peer = 0; peer < kPeers; ++peer) {
    probes.push_back(std::make_unique<ReceiverProbe>(&device_));
    receivers.push_back(New(Options(), probes.back().get()));
  }
  const auto each = [](auto what) {
    for (uint64_t i = 0; i < kPeers * kStreams; ++i) what(1 + i, i % kPeers);
  };
  each([&](uint64_t stream, size_t peer) { Send(*sender, *receivers[peer], stream, kFrames); });
  each([&](uint64_t stream, size_t peer) {
    ExpectArrived(*probes[peer], stream, kFrames);
    uint32_t next = 0;
    for (const auto& call : probes[peer]->CallsOf(stream)) {
      if (call.kind == Kind::kLanded) {
        EXPECT_EQ(call.header.block, next++);
      }
    }
  });
}

TEST_F(StagedTransportTest, ThreeConnectionsToEachPeerShareTwoSlots) {
  ReceiverProbe first(&device_);
  ReceiverProbe second(&device_);
  FramedOptions receiving = Options(3);
  receiving.staging_bytes = 8 * kPayloadBytes;  // a slot for each connection that comes, and more
  const auto there = New(receiving, &first);
  const auto elsewhere = New(receiving, &second);
  const auto sender = New(Options(3), nullptr);
  for (uint64_t stream = 1; stream <= 6; ++stream) {
    Send(*sender, stream % 2 == 0 ? *there : *elsewhere, stream, 30);
  }
  for (uint64_t stream = 1; stream <= 6; ++stream) {
    ExpectArrived(stream % 2 == 0 ? first : second, stream, 30);
  }
}

// Its batch keeps a slot; what it leaves is enough for others.
TEST_F(StagedTransportTest, APeerThatDoesNotReadDoesNotKeepOthersWaiting) {
  absl::Notification held;
  absl::Notification release;
  ReceiverProbe stuck(&device_);
  stuck.prepare_policy = [&](const FrameHeader&) {
    if (!held.HasBeenNotified()) held.Notify();
    release.WaitForNotification();
    return absl::OkStatus();
  };
  ReceiverProbe other(&device_);
  const auto there = New(Options(), &stuck);
  const auto elsewhere = New(Options(), &other);
  const auto sender = New(Options(), nullptr);
  constexpr uint32_t kMany = 1000;  // more than fit into the socket
  Send(*sender, *there, 1, kMany);
  held.WaitForNotification();
  for (uint64_t stream = 2; stream <= 20; ++stream) {
    Send(*sender, *elsewhere, stream, 10);
    ExpectArrived(other, stream, 10);
  }
  release.Notify();
  ExpectArrived(stuck, 1, kMany);
}

TEST_F(StagedTransportTest, AFailedCopyOfWhatIsSentEndsTheStreams) {
  ReceiverProbe probe(&device_);
  const auto receiver = New(Options(), &probe);
  const auto sender = New(Options(), nullptr);
  uint64_t stream = 0;
  for (const Failure failure : {Failure::kCopy, Failure::kSynchronize}) {
    const std::span<std::byte> payload = Payload(1, 0);
    ++stream;
    Open(*sender, *receiver, stream);
    device_.Fail(failure);
    ASSERT_EQ(PostOne(*sender, {stream, kEpoch}, {.payload = payload}), absl::OkStatus());
    const absl::Status status = ends_.Wait(stream);
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("fell off the bus"));
    EXPECT_EQ(probe.Count(stream, Kind::kPrepare), 0) << "nothing of it was sent";
    device_.Fail(Failure::kNone);
    Send(*sender, *receiver, ++stream, 10);
    ExpectArrived(probe, stream, 10);
  }
}

// The sender's memory is the host's: only the receiver's device fails.
TEST_F(StagedTransportTest, AFailedCopyOfWhatComesEndsTheConnection) {
  ReceiverProbe probe;
  LateDevice failing;
  FramedOptions options = Options();
  options.device = &failing;
  const auto receiver = New(options, &probe);
  const auto sender = New({}, nullptr);
  uint64_t stream = 0;
  for (const Failure failure : {Failure::kCopy, Failure::kSynchronize}) {
    failing.Fail(failure);
    Send(*sender, *receiver, ++stream, 10);
    EXPECT_TRUE(absl::IsUnavailable(ends_.Wait(stream)));
    EXPECT_EQ(CountLanded(probe, stream), 0);
    EXPECT_EQ(probe.Count(stream, Kind::kPrepare), probe.Count(stream, Kind::kLanded));
    EXPECT_EQ(probe.Count(stream, Kind::kCommit), 0);
    failing.Fail(Failure::kNone);
    Send(*sender, *receiver, ++stream, 10);
    ExpectArrived(probe, stream, 10);
  }
  EXPECT_EQ(receiver->refused().closed, 0u) << "no fault of the peer's";
  EXPECT_EQ(receiver->refused().malformed, 0u);
}

TEST_F(StagedTransportTest, APayloadThatNoSlotHoldsIsRefused) {
  ReceiverProbe probe(&device_);
  const auto receiver = New(Options(), &probe);
  const auto sender = New(Options(), nullptr);
  Open(*sender, *receiver, 1);
  const std::span<std::byte> large = memory_.New(kPayloadBytes + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(PostOne(*sender, {1, kEpoch}, {.payload = large})));
  sender->AbortStream(1, kEpoch);
  const auto host = New({}, nullptr);
  const std::vector<std::byte> bytes(kPayloadBytes + 1);
  Open(*host, *receiver, 2);
  ASSERT_EQ(PostOne(*host, {2, kEpoch}, {.payload = bytes}), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(ends_.Wait(2)));
  EXPECT_EQ(probe.Count(2, Kind::kPrepare), 0);
  EXPECT_EQ(receiver->refused().closed, 0u);
}

TEST_F(StagedTransportTest, WhatIsSetAsideIsCountedAndNothingComesLater) {
  ReceiverProbe probe(&device_);
  const size_t plain = New({}, &probe)->buffer_bytes();
  const auto receiver = New(Options(), &probe);
  const auto sender = New(Options(), nullptr);
  EXPECT_EQ(receiver->buffer_bytes(), plain + 2 * kBuffersBytes);
  EXPECT_EQ(sender->buffer_bytes(), plain + kBuffersBytes);
  EXPECT_EQ(device_.host_allocations(), 3);
  for (uint64_t stream = 1; stream <= 50; ++stream) {
    Send(*sender, *receiver, stream, 10);
    ExpectArrived(probe, stream, 10);
  }
  EXPECT_EQ(device_.host_allocations(), 3);
  EXPECT_EQ(receiver->buffer_bytes(), plain + 2 * kBuffersBytes);
}

TEST_F(StagedTransportTest, TooLittleIsSaidAtOnce) {
  FramedOptions options = Options();
  options.staging_bytes = kBuffersBytes - 1;
  EXPECT_TRUE(
      absl::IsInvalidArgument(NewFramedTransport(options, network_.NewMedium(), nullptr).status()));
}

// More payloads lie in slots than a probe has places: those that have landed make room.
TEST_F(StagedTransportTest, ProbesTakeTheWayThatPayloadsTake) {
  constexpr size_t kExtentBytes = 32 << 10;
  const SteadyClock clock;
  ProbeReceiver receiver(nullptr, kEpoch,
                         *AllocateProbeMemory(&device_, ProbeReceiver::kMemoryBytes, false), clock);
  LinkProber prober(kExtentBytes, *AllocateProbeMemory(&device_, LinkProber::kMemoryBytes, false),
                    clock);
  FramedOptions options = Options();
  options.staged_payload_bytes = kExtentBytes;
  options.staging_bytes = 8 * ProbeReceiver::kSlots * kExtentBytes;
  const auto there = New(options, &receiver);
  const auto here = New(options, nullptr);
  const auto probe = prober.Measure(*here, there->address(), kEpoch);
  ASSERT_TRUE(probe.ok()) << probe.status();
  EXPECT_GT(probe->gigabytes_per_second, 0);
}

// A peer that holds a slot of the receiver with half a payload.
class HalfSender {
 public:
  HalfSender(const std::string& address, uint64_t stream) {
    auto medium = TcpMedium::Open({});
    medium_ = *std::move(medium);
    channel_ = *medium_->Connect(address);
    Write(EncodeFrameHeader({.type = FrameType::kHello, .stream = stream, .block = 1}));
    Write(EncodeFrameHeader({.type = FrameType::kData,
                             .stream = stream,
                             .epoch = kEpoch,
                             .payload_bytes = kPayloadBytes}));
  }

 private:
  template <typename Bytes>
  void Write(Bytes bytes) {
    const iovec part = {bytes.data(), bytes.size()};
    while (!*channel_->Establish()) {
    }
    while (channel_->Write({&part, 1}).value_or(1) == 0) {
    }
  }

  std::unique_ptr<Medium> medium_;
  std::unique_ptr<ByteChannel> channel_;
};

TEST_F(StagedTransportTest, WhereEverySlotHoldsHalfAPayloadOthersAreDroppedAndMissing) {
  ReceiverProbe probe(&device_);
  const auto receiver = *NewFramedTransport(Options(), *TcpMedium::Open({}), &probe);
  const auto sender = *NewFramedTransport(Options(), *TcpMedium::Open({}), nullptr);
  {
    const HalfSender first(receiver->address(), 101);
    const HalfSender second(receiver->address(), 102);
    ASSERT_TRUE(probe.WaitFor(101, Kind::kPrepare, 1));
    ASSERT_TRUE(probe.WaitFor(102, Kind::kPrepare, 1));
    Send(*sender, *receiver, 1, 3);
    EXPECT_TRUE(absl::IsDataLoss(ends_.Wait(1)));
    EXPECT_EQ(probe.Count(1, Kind::kPrepare), 0);
  }
  ASSERT_TRUE(probe.WaitFor(101, Kind::kLanded, 1));
  ASSERT_TRUE(probe.WaitFor(102, Kind::kLanded, 1));
  Send(*sender, *receiver, 2, 3);
  ExpectArrived(probe, 2, 3);
}

// A medium whose channels say that they still read all that they took, until told otherwise.
class HoldingMedium final : public Medium {
 public:
  HoldingMedium(std::unique_ptr<Medium> medium, const std::atomic<bool>& holds)
      : medium_(std::move(medium)), holds_(holds) {}

  std::string_view name() const override { return medium_->name(); }
  std::string address() const override { return medium_->address(); }
  absl::Status MayReach(std::string_view peer) const override { return medium_->MayReach(peer); }
  int listener_fd() const override { return medium_->listener_fd(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override { return medium_->Accept(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override {
    return std::make_unique<Channel>(*medium_->Connect(peer), holds_);
  }
  size_t buffer_bytes() const override { return medium_->buffer_bytes(); }

 private:
  class Channel final : public ByteChannel {
   public:
    Channel(std::unique_ptr<ByteChannel> channel, const std::atomic<bool>& holds)
        : channel_(std::move(channel)), holds_(holds) {}
    int fd() const override { return channel_->fd(); }
    bool wants_output() const override { return channel_->wants_output(); }
    absl::StatusOr<bool> Establish() override { return channel_->Establish(); }
    absl::StatusOr<size_t> Read(std::span<const iovec> parts) override {
      return channel_->Read(parts);
    }
    absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
      auto count = channel_->Write(parts);
      taken_ += count.value_or(0);
      return count;
    }
    size_t held_bytes() const override { return holds_ ? taken_ : 0; }

   private:
    const std::unique_ptr<ByteChannel> channel_;
    const std::atomic<bool>& holds_;
    size_t taken_ = 0;
  };

  const std::unique_ptr<Medium> medium_;
  const std::atomic<bool>& holds_;
};

TEST_F(StagedTransportTest, ASlotIsNotUsedAgainWhileTheChannelReadsIt) {
  std::atomic<bool> holds = true;
  ReceiverProbe probe(&device_);
  const auto receiver = New(Options(), &probe);
  const auto sender = *NewFramedTransport(
      Options(), std::make_unique<HoldingMedium>(network_.NewMedium(), holds), nullptr);
  Open(*sender, *receiver, 1, milliseconds(2));
  for (uint32_t block = 0; block < 10; ++block) {
    ASSERT_EQ(PostOne(*sender, {1, kEpoch}, {.block = block, .payload = Payload(1, block)}),
              absl::OkStatus());
  }
  ASSERT_EQ(sender->FinishStream(1, kEpoch), absl::OkStatus());
  // Each is a turn in which more could have been sent.
  ASSERT_TRUE(probe.WaitFor(1, Kind::kRenewed, 5));
  EXPECT_EQ(probe.Count(1, Kind::kPrepare), 1) << "the second slot is for others";
  holds = false;
  ExpectArrived(probe, 1, 10);
}

}  // namespace
}  // namespace tandem
