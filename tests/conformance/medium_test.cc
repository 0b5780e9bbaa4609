// What every medium promises (transfer/media/medium.h, transfer/wire/byte_channel.h), over all of
// them.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "kernels/cpu/device.h"
#include "kernels/registry.h"
#include "tests/support/channel_pair.h"
#include "tests/support/loopback_transport.h"
#include "tests/support/test_certificates.h"
#include "tests/support/test_device.h"
#include "transfer/media/ipc/ipc_medium.h"
#include "transfer/media/nccl/nccl_medium.h"
#include "transfer/media/shm/shm_medium.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem::medium_test {
namespace {

enum class Reach : uint8_t { kProcess, kHost };

struct MediumCase {
  std::string name;
  Reach reach;
  std::function<std::unique_ptr<Medium>()> make;
};

void PrintTo(const MediumCase& medium, std::ostream* out) { *out << medium.name; }

std::unique_ptr<Medium> NewShm() {
  static const std::unique_ptr<Device> device = NewCpuDevice();
  return *OpenShmMedium({.device = device.get(),
                         .buffer_bytes = 8 << 18,
                         .area_bytes = 1 << 18,
                         .max_payload_bytes = 64 << 10});
}

std::unique_ptr<Medium> NewIpc() {
  static const std::unique_ptr<Device> device = NewCpuDevice();
  static const DeviceBuffer pool = *device->AllocateShared(1 << 20);
  return *OpenIpcMedium({.device = device.get(), .shared = {pool.bytes()}});
}

std::unique_ptr<Medium> NewTcp() { return *OpenTcpMedium({}); }

std::unique_ptr<Medium> NewTls() {
  static const TestAuthority authority(::testing::TempDir(), fmt::format("media-{}", getpid()));
  static const TlsFiles files = authority.Issue("worker");
  return *OpenTcpMedium({.tls = files});
}

// On the emulated GPU (TANDEM_TEST_DEVICE).
std::unique_ptr<Medium> NewNccl() {
  static const Backend gpu = *OpenBackend(TestDevice(), {});
  return *OpenNcclMedium(*gpu.device, {.chunk_bytes = 64 << 10});
}

std::unique_ptr<Medium> NewLoopback() {
  static LoopbackNetwork network;
  return network.NewMedium();
}

class MediumTest : public ::testing::TestWithParam<MediumCase> {
 protected:
  ChannelPair Connect() { return ConnectPair(*near_, *far_); }

  const std::unique_ptr<Medium> near_ = GetParam().make();
  const std::unique_ptr<Medium> far_ = GetParam().make();
};

TEST_P(MediumTest, KnowsItsAddresses) {
  EXPECT_EQ(near_->MayReach(far_->address()), absl::OkStatus());
  EXPECT_EQ(near_->name(), far_->name());
  EXPECT_NE(near_->address(), far_->address());
  std::vector<std::string> no_addresses = {""};
  if (GetParam().reach == Reach::kHost) {  // within a process any name may be one
    no_addresses.insert(no_addresses.end(), {"x", "no address\n", ":::", "-"});
  }
  for (const std::string& nonsense : no_addresses) {
    EXPECT_EQ(near_->MayReach(nonsense).code(), absl::StatusCode::kInvalidArgument) << nonsense;
    EXPECT_FALSE(near_->Connect(nonsense).ok()) << nonsense;
  }
}

TEST_P(MediumTest, BytesArriveInOrderBothWaysAtOnce) {
  for (const uint64_t seed : {1, 2, 3}) {
    ChannelPair pair = Connect();
    ASSERT_TRUE(pair.accepted);
    constexpr size_t kBytes = 24 << 20;
    PatternFlow one(*pair.connected, {.send_seed = seed,
                                      .send_bytes = kBytes,
                                      .receive_seed = seed + 100,
                                      .receive_bytes = kBytes / 4});
    PatternFlow two(*pair.accepted, {.send_seed = seed + 100,
                                     .send_bytes = kBytes / 4,
                                     .receive_seed = seed,
                                     .receive_bytes = kBytes});
    std::thread other([&] { two.RunToEnd(); });
    one.RunToEnd();
    other.join();
    EXPECT_TRUE(one.done() && two.done()) << one.failure() << " " << two.failure();
  }
}

TEST_P(MediumTest, EveryPieceOfAFewBytesWakes) {
  ChannelPair pair = Connect();
  ASSERT_TRUE(pair.accepted);
  constexpr size_t kBytes = 200'000;
  PatternFlow one(*pair.connected, {.send_seed = 1,
                                    .send_bytes = kBytes,
                                    .receive_seed = 2,
                                    .receive_bytes = kBytes,
                                    .max_piece = 40});
  PatternFlow two(*pair.accepted, {.send_seed = 2,
                                   .send_bytes = kBytes,
                                   .receive_seed = 1,
                                   .receive_bytes = kBytes,
                                   .max_piece = 40});
  std::thread other([&] { two.RunToEnd(); });
  one.RunToEnd();
  other.join();
  EXPECT_TRUE(one.done() && two.done()) << one.failure() << " " << two.failure();
}

// Ping-pong: nobody can run ahead, so every message needs its event. One event each, two where the
// way back from a wake-up shows as one of its own.
TEST_P(MediumTest, AnEventPerMessageAndNoneBetween) {
  ChannelPair pair = Connect();
  ASSERT_TRUE(pair.accepted);
  constexpr size_t kRounds = 500;
  const auto take = [](ByteChannel& channel, size_t& events) {
    std::byte byte;
    const iovec part = {&byte, 1};
    while (true) {
      const auto count = channel.Read({&part, 1});
      ASSERT_TRUE(count.ok()) << count.status();
      if (*count == 1) return;
      ++events;
      ASSERT_TRUE(AwaitEvent(channel));
    }
  };
  const auto give = [](ByteChannel& channel) {
    std::byte byte{42};
    const iovec part = {&byte, 1};
    ASSERT_EQ(channel.Write({&part, 1}).value_or(0), 1u);
  };
  size_t near_events = 0;
  size_t far_events = 0;
  std::thread other([&] {
    for (size_t round = 0; round < kRounds && !HasFatalFailure(); ++round) {
      take(*pair.accepted, far_events);
      give(*pair.accepted);
    }
  });
  for (size_t round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    give(*pair.connected);
    take(*pair.connected, near_events);
  }
  other.join();
  EXPECT_LE(near_events, 2 * kRounds);
  EXPECT_LE(far_events, 2 * kRounds + 1);
}

TEST_P(MediumTest, IdleMeansNoEvents) {
  ChannelPair pair = Connect();
  ASSERT_TRUE(pair.accepted);
  PatternFlow one(*pair.connected, {.send_seed = 5, .send_bytes = 5 << 20});
  PatternFlow two(*pair.accepted, {.receive_seed = 5, .receive_bytes = 5 << 20});
  const std::array<const ByteChannel*, 2> both = {pair.connected.get(), pair.accepted.get()};
  while (!(one.done() && two.done())) {
    const bool first = one.Advance();
    const bool moved = two.Advance() || first;
    ASSERT_EQ(one.failure(), absl::OkStatus());
    ASSERT_EQ(two.failure(), absl::OkStatus());
    if (!moved && !two.done()) {
      ASSERT_TRUE(AwaitEventOfAny(both));
    }
  }
  // What the last bytes left behind, acknowledgements of sockets and wake-ups, is taken.
  one.Advance();
  two.Advance();
  EXPECT_FALSE(HasEventAtOnce(*pair.connected));
  EXPECT_FALSE(HasEventAtOnce(*pair.accepted));
}

TEST_P(MediumTest, AReaderThatStopsHoldsTheWriterBack) {
  ChannelPair pair = Connect();
  ASSERT_TRUE(pair.accepted);
  constexpr size_t kMuch = 256 << 20;
  PatternFlow writer(*pair.connected, {.send_seed = 9, .send_bytes = kMuch});
  PatternFlow reader(*pair.accepted, {.receive_seed = 9, .receive_bytes = kMuch});
  do {
    while (writer.WriteOnce() > 0) {
    }
    ASSERT_EQ(writer.failure(), absl::OkStatus());
  } while (HasEventAtOnce(*pair.connected) && writer.sent() < kMuch);
  EXPECT_LT(writer.sent(), size_t{64} << 20) << "nothing held the writer back";
  const size_t held = writer.sent();
  const std::array<const ByteChannel*, 2> both = {pair.connected.get(), pair.accepted.get()};
  bool writer_was_asked = false;  // for what its channel took and did not send
  while (reader.received() < held) {
    if (reader.ReadOnce() == 0) {
      ASSERT_TRUE(AwaitEventOfAny(both));
      writer_was_asked |= HasEventAtOnce(*pair.connected) && writer.WriteOnce() > 0;
    }
    ASSERT_EQ(reader.failure(), absl::OkStatus());
  }
  if (writer_was_asked) return;
  ASSERT_TRUE(AwaitEvent(*pair.connected)) << "the writer was not told that there is room";
  EXPECT_GT(writer.WriteOnce(), 0u);
}

// After any event both are tried: the one that says that there is room may be taken by a Read.
TEST_P(MediumTest, AReadBetweenDoesNotStealTheWritersEvent) {
  ChannelPair pair = Connect();
  ASSERT_TRUE(pair.accepted);
  constexpr size_t kBytes = 64 << 20;
  PatternFlow writer(*pair.connected, {.send_seed = 9, .send_bytes = kBytes});
  PatternFlow reader(*pair.accepted, {.receive_seed = 9, .receive_bytes = kBytes});
  std::thread other([&] { reader.RunToEnd(); });
  while (writer.failure().ok()) {
    while (writer.WriteOnce() > 0) {
    }
    if (writer.done() || !AwaitEvent(*pair.connected)) break;
    EXPECT_EQ(writer.ReadOnce(), 0u);
  }
  EXPECT_TRUE(writer.done()) << writer.failure();
  pair.connected.reset();
  other.join();
  EXPECT_TRUE(reader.done()) << reader.failure();
}

TEST_P(MediumTest, WhatWasSentBeforeTheEndArrives) {
  for (const bool connector_ends : {true, false}) {
    ChannelPair pair = Connect();
    ASSERT_TRUE(pair.accepted);
    auto& ends = connector_ends ? pair.connected : pair.accepted;
    auto& stays = connector_ends ? pair.accepted : pair.connected;
    PatternFlow writer(*ends, {.send_seed = 3, .send_bytes = 9000});
    PatternFlow reader(*stays, {.receive_seed = 3, .receive_bytes = 9000});
    ASSERT_TRUE(writer.Advance());
    ASSERT_TRUE(writer.done());
    ends.reset();
    while (reader.failure().ok()) {
      if (reader.ReadOnce() == 0 && reader.failure().ok()) {
        ASSERT_TRUE(AwaitEvent(*stays));
      }
    }
    EXPECT_EQ(reader.received(), 9000u);
    EXPECT_EQ(reader.failure().code(), absl::StatusCode::kUnavailable);
    // Writing ends as well, though the system may take some bytes first.
    PatternFlow late(*stays, {.send_seed = 4, .send_bytes = 256 << 20});
    while (late.failure().ok() && !late.done()) {
      if (late.WriteOnce() == 0 && late.failure().ok()) {
        ASSERT_TRUE(AwaitEvent(*stays));
      }
    }
    EXPECT_EQ(late.failure().code(), absl::StatusCode::kUnavailable);
  }
}

TEST_P(MediumTest, AWriterWithoutRoomNoticesTheEnd) {
  ChannelPair pair = Connect();
  ASSERT_TRUE(pair.accepted);
  PatternFlow writer(*pair.connected, {.send_seed = 3, .send_bytes = 256 << 20});
  while (writer.WriteOnce() > 0) {
  }
  ASSERT_FALSE(writer.done());
  pair.accepted.reset();
  while (writer.failure().ok() && !writer.done()) {
    if (writer.WriteOnce() == 0 && writer.failure().ok()) {
      ASSERT_TRUE(AwaitEvent(*pair.connected));
    }
  }
  EXPECT_EQ(writer.failure().code(), absl::StatusCode::kUnavailable);
}

TEST_P(MediumTest, ConnectionsDoNotMix) {
  constexpr size_t kPairs = 5;
  constexpr size_t kBytes = 2 << 20;
  std::vector<ChannelPair> pairs(kPairs);
  std::vector<PatternFlow> flows;
  flows.reserve(2 * kPairs);
  std::vector<const ByteChannel*> channels;
  for (uint64_t i = 0; i < kPairs; ++i) {
    pairs[i] = Connect();
    ASSERT_TRUE(pairs[i].accepted);
    flows.emplace_back(*pairs[i].connected,
                       PatternFlow::Plan{.send_seed = 10 + i, .send_bytes = kBytes});
    flows.emplace_back(*pairs[i].accepted,
                       PatternFlow::Plan{.receive_seed = 10 + i, .receive_bytes = kBytes});
    channels.push_back(pairs[i].connected.get());
    channels.push_back(pairs[i].accepted.get());
  }
  while (true) {
    bool moved = false;
    bool done = true;
    for (PatternFlow& flow : flows) {
      moved |= flow.Advance();
      done &= flow.done();
      ASSERT_EQ(flow.failure(), absl::OkStatus());
    }
    if (done) break;
    if (!moved) {
      ASSERT_TRUE(AwaitEventOfAny(channels));
    }
  }
}

TEST_P(MediumTest, NobodyAtTheAddress) {
  std::string address;
  {
    const auto gone = GetParam().make();
    address = gone->address();
  }
  auto channel = near_->Connect(address);
  absl::Status status = channel.status();
  while (status.ok()) {
    const auto established = (*channel)->Establish();
    status = established.status();
    if (!status.ok()) break;
    ASSERT_FALSE(*established);
    ASSERT_TRUE(AwaitEvent(**channel));
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
}

// The rest of the child's life: connects, sends 1000 bytes and hangs.
[[noreturn]] void LiveUntilKilled(const MediumCase& medium, const std::string& address) {
  const auto own = medium.make();
  auto channel = own->Connect(address);
  if (!channel.ok()) _exit(1);
  while (true) {
    const auto established = (*channel)->Establish();
    if (!established.ok()) _exit(2);
    if (*established) break;
    AwaitEvent(**channel);
  }
  PatternFlow writer(**channel, {.send_seed = 8, .send_bytes = 1000});
  while (!writer.done()) writer.WriteOnce();
  while (true) pause();
}

TEST_P(MediumTest, DeathOfTheOtherProcessIsTheEnd) {
  if (GetParam().reach == Reach::kProcess) GTEST_SKIP() << "stays within a process";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) LiveUntilKilled(GetParam(), far_->address());
  const std::unique_ptr<ByteChannel> channel = AwaitConnection(*far_);
  ASSERT_TRUE(channel);
  while (!*channel->Establish()) ASSERT_TRUE(AwaitEvent(*channel));
  PatternFlow reader(*channel, {.receive_seed = 8, .receive_bytes = 1000});
  while (reader.received() < 1000) {
    if (reader.ReadOnce() == 0) {
      ASSERT_TRUE(AwaitEvent(*channel));
    }
    ASSERT_EQ(reader.failure(), absl::OkStatus());
  }
  EXPECT_EQ(reader.ReadOnce(), 0u);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  while (reader.failure().ok()) {
    ASSERT_TRUE(AwaitEvent(*channel));
    reader.ReadOnce();
  }
  EXPECT_EQ(reader.failure().code(), absl::StatusCode::kUnavailable);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
}

INSTANTIATE_TEST_SUITE_P(All, MediumTest,
                         ::testing::Values(MediumCase{"loopback", Reach::kProcess, NewLoopback},
                                           MediumCase{"ipc", Reach::kHost, NewIpc},
                                           MediumCase{"nccl", Reach::kHost, NewNccl},
                                           MediumCase{"shm", Reach::kHost, NewShm},
                                           MediumCase{"tcp", Reach::kHost, NewTcp},
                                           MediumCase{"tls", Reach::kHost, NewTls}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tandem::medium_test
