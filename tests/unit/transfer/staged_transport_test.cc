// The framed transport between memories of devices: few slots for many, failing copies, what is
// set aside.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/late_device.h"
#include "tests/support/loopback_transport.h"
#include "tests/support/payload_memory.h"
#include "tests/support/transport_probe.h"
#include "transfer/fabric/link_prober.h"
#include "transfer/fabric/probe_receiver.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem::staged_transport_test {
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
  FramedOptions Options() {
    return {
        .device = &device_, .staged_payload_bytes = kPayloadBytes, .staging_bytes = kBuffersBytes};
  }
  std::unique_ptr<Transport> New(const FramedOptions& options, FrameReceiver* receiver) {
    return network_.NewTransport(receiver, options);
  }

  void Open(Transport& sender, const Transport& receiver, uint64_t stream,
            Duration renew_every = Duration::zero()) {
    ASSERT_EQ(
        streams_.Open(sender, receiver.address(), stream, kEpoch, renew_every, ends_.Callback()),
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
      ASSERT_EQ(streams_.PostOne(sender, {stream, kEpoch},
                                 {.block = block, .payload = Payload(stream, block)}),
                absl::OkStatus());
    }
    ASSERT_EQ(streams_.Finish(sender, {stream, kEpoch}), absl::OkStatus());
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
  StreamBook streams_;
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
    ASSERT_EQ(streams_.PostOne(*sender, {stream, kEpoch}, {.payload = payload}), absl::OkStatus());
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
  EXPECT_EQ(receiver->stats().refused.closed, 0u) << "no fault of the peer's";
  EXPECT_EQ(receiver->stats().refused.malformed, 0u);
}

TEST_F(StagedTransportTest, APayloadThatNoSlotHoldsIsRefused) {
  ReceiverProbe probe(&device_);
  const auto receiver = New(Options(), &probe);
  const auto sender = New(Options(), nullptr);
  Open(*sender, *receiver, 1);
  const std::span<std::byte> large = memory_.New(kPayloadBytes + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(streams_.PostOne(*sender, {1, kEpoch}, {.payload = large})));
  streams_.Abort(*sender, {1, kEpoch});
  const auto host = New({}, nullptr);
  const std::vector<std::byte> bytes(kPayloadBytes + 1);
  Open(*host, *receiver, 2);
  ASSERT_EQ(streams_.PostOne(*host, {2, kEpoch}, {.payload = bytes}), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(ends_.Wait(2)));
  EXPECT_EQ(probe.Count(2, Kind::kPrepare), 0);
  EXPECT_EQ(receiver->stats().refused.closed, 0u);
}

TEST_F(StagedTransportTest, WhatIsSetAsideIsCountedAndNothingComesLater) {
  ReceiverProbe probe(&device_);
  const size_t plain = New({}, &probe)->stats().buffer_bytes;
  const auto receiver = New(Options(), &probe);
  const auto sender = New(Options(), nullptr);
  EXPECT_EQ(receiver->stats().buffer_bytes, plain + 2 * kBuffersBytes);
  EXPECT_EQ(sender->stats().buffer_bytes, plain + kBuffersBytes);
  EXPECT_EQ(device_.host_allocations(), 3);
  for (uint64_t stream = 1; stream <= 50; ++stream) {
    Send(*sender, *receiver, stream, 10);
    ExpectArrived(probe, stream, 10);
  }
  EXPECT_EQ(device_.host_allocations(), 3);
  EXPECT_EQ(receiver->stats().buffer_bytes, plain + 2 * kBuffersBytes);
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
    auto medium = OpenTcpMedium({});
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
  const auto receiver = *NewFramedTransport(Options(), *OpenTcpMedium({}), &probe);
  const auto sender = *NewFramedTransport(Options(), *OpenTcpMedium({}), nullptr);
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

}  // namespace
}  // namespace tandem::staged_transport_test
