#pragma once

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/check.h"
#include "base/status.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/support/faulty_medium.h"
#include "tests/support/loopback_transport.h"
#include "tests/support/payload_memory.h"
#include "tests/support/recycling_device.h"
#include "tests/support/test_certificates.h"
#include "tests/support/test_device.h"
#include "tests/support/transport_probe.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/media/ipc/ipc_medium.h"
#include "transfer/media/nccl/nccl_medium.h"
#include "transfer/media/shm/shm_medium.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem {

// Of a test whose payloads lie where a side channel finds them.
struct SideChannelMemory {
  Device& device;
  std::span<const std::byte> shared;  // all payloads
  const size_t& max_payload_bytes;    // when a medium is made
};

// The media that the conformance tests of transports run over. Another one is one more line.
struct FabricKind {
  using NewMedium = std::function<std::unique_ptr<Medium>()>;

  std::string name;
  // One of the two.
  std::function<NewMedium()> open;
  std::function<NewMedium(const SideChannelMemory& memory)> open_with_side_channels;
};

inline std::unique_ptr<Medium> Opened(absl::StatusOr<std::unique_ptr<Medium>> medium) {
  EXPECT_TRUE(medium.ok()) << medium.status();
  return *std::move(medium);
}

template <typename Options>
FabricKind::NewMedium MediumOf(
    absl::StatusOr<std::unique_ptr<Medium>> (*open)(const Options& options), Options options) {
  return [open, options] { return Opened(open(options)); };
}

inline FabricKind::NewMedium OpenLoopback() {
  return [network = std::make_shared<LoopbackNetwork>()] { return network->NewMedium(); };
}
inline FabricKind::NewMedium OpenTcp() { return MediumOf(&OpenTcpMedium, TcpOptions{}); }
// Areas that go round and fill up often.
inline FabricKind::NewMedium OpenShm(const SideChannelMemory& memory) {
  return [memory] {
    const size_t area_bytes =
        std::bit_ceil(std::max(4 * memory.max_payload_bytes, size_t{1} << 20));
    return Opened(OpenShmMedium({.device = &memory.device,
                                 .buffer_bytes = 4 * area_bytes,
                                 .area_bytes = area_bytes,
                                 .max_payload_bytes = memory.max_payload_bytes}));
  };
}

inline FabricKind::NewMedium OpenTls() {
  const TestAuthority authority(::testing::TempDir(), fmt::format("conformance-{}", getpid()));
  return MediumOf(&OpenTcpMedium, TcpOptions{.tls = authority.Issue("worker")});
}

inline FabricKind::NewMedium OpenIpc(const SideChannelMemory& memory) {
  return MediumOf(&OpenIpcMedium, IpcOptions{.device = &memory.device, .shared = {memory.shared}});
}

// On the emulated GPU. Tests hold the receiver up for longer than a peer may be.
inline FabricKind::NewMedium OpenNccl(const SideChannelMemory& memory) {
  return [&device = memory.device] {
    return Opened(OpenNcclMedium(
        device,
        {.send_slots = 3, .receive_slots = 6, .operation_grace = std::chrono::seconds(60)}));
  };
}

inline const FabricKind kFabrics[] = {{"loopback", &OpenLoopback}, {"tls", &OpenTls},
                                      {"tcp", &OpenTcp},           {"shm", {}, &OpenShm},
                                      {"ipc", {}, &OpenIpc},       {"nccl", {}, &OpenNccl}};

inline std::string FabricName(const ::testing::TestParamInfo<FabricKind>& info) {
  return info.param.name;
}

inline constexpr uint64_t kEpoch = 7;

// Where payloads lie and land: the device that TANDEM_TEST_DEVICE names. Null: in the host's
// memory.
inline Device* PayloadDevice() {
  static const std::unique_ptr<Device> device = [] {
    if (TestDevice() == "cpu") return std::unique_ptr<Device>();
    auto backend = OpenBackend(TestDevice(), {});
    TANDEM_CHECK(backend.ok(), backend.status().ToString());
    return std::move(backend->device);
  }();
  return device.get();
}

// Where payloads with a side channel lie: that, or the host as a device.
inline Device& SideChannelDevice() {
  static const Backend cpu = *OpenBackend("cpu", {.num_threads = 1});
  static RecyclingDevice device(PayloadDevice() != nullptr ? *PayloadDevice() : *cpu.device);
  return device;
}

// A transport that sends and one that receives, with what tests ask of them.
class TransportFixture : public ::testing::TestWithParam<FabricKind> {
 protected:
  using Kind = ReceiverProbe::Call::Kind;

  // On a device or over shared memory: for payloads larger than 64 KiB. Before Start.
  void MakeRoomFor(size_t payload_bytes) {
    options_.staged_payload_bytes = payload_bytes;
    options_.staging_bytes = 8 * payload_bytes;
  }

  // After the policies of receiver_probe_ were set.
  void Start() {
    receiver_ = NewTransport(&receiver_probe_);
    sender_ = NewTransport(nullptr);
  }
  // The same, but `hook` decides what becomes of the frames on their way to the receiver.
  void StartWithFaults(FrameHook hook) {
    receiver_ = Framed(NewFaultyMedium(new_medium_(), std::move(hook)), &receiver_probe_);
    sender_ = NewTransport(nullptr);
  }
  // The same of what the receiver says to the sender.
  void StartWithFaultyAnswers(FrameHook hook) {
    receiver_ = NewTransport(&receiver_probe_);
    sender_ = Framed(NewFaultyMedium(new_medium_(), std::move(hook)), nullptr);
  }

  std::unique_ptr<Transport> NewTransport(FrameReceiver* receiver) {
    return Framed(new_medium_(), receiver);
  }
  std::unique_ptr<Transport> Framed(std::unique_ptr<Medium> medium, FrameReceiver* receiver) {
    auto transport = NewFramedTransport(options_, std::move(medium), receiver);
    EXPECT_TRUE(transport.ok()) << transport.status();
    return *std::move(transport);
  }
  // Where somebody was a moment ago.
  std::string DeadAddress() { return new_medium_()->address(); }

  absl::Status Open(uint64_t stream, Duration renew_every = Duration::zero()) {
    return streams_.Open(*sender_, receiver_->address(), stream, kEpoch, renew_every,
                         ends_.Callback());
  }

  // Kept until the end of the test, at a place that does not move.
  std::span<std::byte> Payload(size_t size, uint64_t seed) {
    const std::span<std::byte> payload = payloads_.New(size);
    payloads_.Write(payload, PatternBytes(size, seed));
    return payload;
  }

  absl::Status Post(uint64_t stream, uint32_t layer, uint32_t block,
                    std::span<const std::byte> payload) {
    return streams_.PostOne(*sender_, {stream, kEpoch},
                            {.layer = layer, .block = block, .payload = payload});
  }

  // Blocks [first, last) of layer 0, in one call. The payloads are those of SendWhole.
  absl::Status PostTogether(uint64_t stream, uint32_t first, uint32_t last, size_t size) {
    std::vector<PostedExtent> extents;
    for (uint32_t block = first; block < last; ++block) {
      extents.push_back({.block = block, .payload = Payload(size, stream * 1000 + block)});
    }
    return streams_.Post(*sender_, {stream, kEpoch}, extents);
  }

  // Opens, posts `count` payloads of `size` and finishes.
  void SendWhole(uint64_t stream, uint32_t count, size_t size) {
    ASSERT_EQ(Open(stream), absl::OkStatus());
    for (uint32_t block = 0; block < count; ++block) {
      ASSERT_EQ(Post(stream, 0, block, Payload(size, stream * 1000 + block)), absl::OkStatus());
    }
    ASSERT_EQ(streams_.Finish(*sender_, {stream, kEpoch}), absl::OkStatus());
  }

  // Returns when the sender's thread has executed everything that was asked of it before. Opens and
  // ends `stream` for this, to a receiver of its own: one thread serves all streams in order.
  void WaitUntilSenderHasTakenCommands(uint64_t stream) {
    ReceiverProbe other_probe;
    const auto other = NewTransport(&other_probe);
    ASSERT_EQ(streams_.Open(*sender_, other->address(), stream, kEpoch, Duration::zero(),
                            ends_.Callback()),
              absl::OkStatus());
    ASSERT_EQ(streams_.Finish(*sender_, {stream, kEpoch}), absl::OkStatus());
    EXPECT_EQ(ends_.Wait(stream), absl::OkStatus());
  }

  void ExpectArrived(uint64_t stream, uint32_t count, size_t size) {
    EXPECT_EQ(ends_.Wait(stream), absl::OkStatus());
    for (uint32_t block = 0; block < count; ++block) {
      EXPECT_EQ(receiver_probe_.BytesOf(stream, 0, block),
                PatternBytes(size, stream * 1000 + block))
          << "stream " << stream << " block " << block;
    }
    EXPECT_EQ(receiver_probe_.Count(stream, Kind::kCommit), 1);
  }

  // Closes both sides and expects that each of `streams` ended once.
  void ExpectOneEndEach(std::initializer_list<uint64_t> streams) {
    sender_.reset();
    receiver_.reset();
    for (uint64_t stream : streams) EXPECT_EQ(ends_.count(stream), 1) << "stream " << stream;
    EXPECT_EQ(ends_.total(), static_cast<int>(streams.size()));
  }

  static constexpr size_t kSharedBytes = size_t{50} << 20;

  static bool has_side_channels() { return GetParam().open_with_side_channels != nullptr; }
  static PayloadMemory NewPayloads() {
    return has_side_channels() ? PayloadMemory(SideChannelDevice(), kSharedBytes)
                               : PayloadMemory(PayloadDevice());
  }
  FabricKind::NewMedium OpenKind() const {
    if (!has_side_channels()) return GetParam().open();
    return GetParam().open_with_side_channels({.device = SideChannelDevice(),
                                               .shared = payloads_.shared(),
                                               .max_payload_bytes = options_.staged_payload_bytes});
  }

  PayloadMemory payloads_ = NewPayloads();
  const FabricKind::NewMedium new_medium_ = OpenKind();
  // Of the transports that are made from here on.
  FramedOptions options_ = {.device = has_side_channels() ? &SideChannelDevice() : PayloadDevice(),
                            .staged_payload_bytes = 64 << 10,
                            .staging_bytes = 1 << 20};
  StreamBook streams_;
  EndProbe ends_;
  ReceiverProbe receiver_probe_{PayloadDevice()};
  std::unique_ptr<Transport> receiver_;
  std::unique_ptr<Transport> sender_;
};

}  // namespace tandem
