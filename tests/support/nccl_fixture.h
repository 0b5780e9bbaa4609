#pragma once

#include <dlfcn.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "tests/simt/fake_nccl.h"
#include "tests/support/channel_pair.h"
#include "tests/support/payload_memory.h"
#include "transfer/media/nccl/nccl_medium.h"

namespace tandem {

// The emulated GPU of a test.
inline Device& EmulatedGpu() {
  static const std::unique_ptr<Device> device = [] {
    auto backend = OpenBackend("cuda:0", {});
    TANDEM_CHECK(backend.ok(), backend.status().ToString());
    return std::move(backend->device);
  }();
  return *device;
}

// The switches and counters of the stand-in that media of this process use.
inline FakeNccl& TheFakeNccl() {
  void* const library = dlopen(TANDEM_NCCL_NAME, RTLD_NOW | RTLD_LOCAL);
  TANDEM_CHECK(library != nullptr, "the stand-in for NCCL is not where the build put it");
  return *reinterpret_cast<FakeNccl* (*)()>(dlsym(library, "fake_nccl"))();
}

// Small slots: operations of many sizes fill them.
inline NcclOptions SmallNccl() {
  return {.chunk_bytes = 256 << 10, .send_slots = 3, .receive_slots = 4};
}

inline std::unique_ptr<Medium> OpenSmallNccl(const NcclOptions& options = SmallNccl()) {
  auto medium = OpenNcclMedium(EmulatedGpu(), options);
  TANDEM_CHECK(medium.ok(), medium.status().ToString());
  return *std::move(medium);
}

inline std::string Message(const absl::Status& status) { return std::string(status.message()); }

inline std::vector<std::byte> RandomBytes(std::mt19937_64& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// Media of this process, their connections driven by hand. The stand-in has no faults at the end.
class NcclTest : public ::testing::Test {
 protected:
  ~NcclTest() override {
    fake_.version = NCCL_VERSION_CODE;
    fake_.init_hangs = false;
    fake_.init_fails = false;
    fake_.operations_until_error = -1;
    fake_.abort_blocks = false;
  }

  // The status with which a connection ends that is not established, at its connecting side.
  absl::Status FailToConnect(Medium& from, Medium& to) {
    auto connecting = from.Connect(to.address());
    if (!connecting.ok()) return connecting.status();
    absl::StatusOr<bool> established = (*connecting)->Establish();
    const std::unique_ptr<ByteChannel> accepted = AwaitConnection(to);
    bool accepting = true;  // has not failed yet
    while (established.ok() && !*established) {
      if (accepting) {
        accepted_status_ = accepted->Establish().status();
        accepting = accepted_status_.ok();
      }
      established = (*connecting)->Establish();
      if (established.ok() && !*established && !AwaitEvent(**connecting)) break;
    }
    return established.status();
  }

  // Both sides go so many steps and leave.
  void GiveUpWhileConnecting(Medium& from, Medium& to, int steps) {
    auto connecting = from.Connect(to.address());
    ASSERT_TRUE(connecting.ok()) << connecting.status();
    ASSERT_TRUE((*connecting)->Establish().ok());
    const auto accepted = AwaitConnection(to);
    ASSERT_TRUE(accepted);
    // It may refuse.
    for (int step = 0; step < steps && accepted->Establish().ok(); ++step) {
      ASSERT_TRUE((*connecting)->Establish().ok());
    }
  }

  // Reads until the channel fails. Nothing else comes.
  absl::Status AwaitFailure(ByteChannel& channel) {
    std::byte byte;
    const iovec part = {&byte, 1};
    while (true) {
      if (!channel.side_channel()->arriving()) {
        const absl::StatusOr<size_t> count = channel.Read({&part, 1});
        if (!count.ok()) return count.status();
        EXPECT_EQ(*count, 0u);
      }
      if (!AwaitEvent(channel)) return absl::OkStatus();
    }
  }

  // One operation with payloads of these sizes from one side to the other.
  void SendAndCheck(ChannelPair& pair, const std::vector<size_t>& sizes, std::mt19937_64& random) {
    SideChannel& from = *pair.connected->side_channel();
    SideChannel& to = *pair.accepted->side_channel();
    std::vector<std::vector<std::byte>> sent;
    std::vector<OfferedPayload> payloads;
    for (const size_t size : sizes) {
      sent.push_back(RandomBytes(random, size));
      const std::span<std::byte> at = memory_.New(size);
      memory_.Write(at, sent.back());
      payloads.push_back({.bytes = at});
    }
    const auto announced = from.Offer(payloads);
    ASSERT_TRUE(announced.ok()) << announced.status();
    ASSERT_EQ(to.Expect(*announced), absl::OkStatus());
    ASSERT_TRUE(AwaitArrival(pair));
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(payloads[i].hash, Hash64(sent[i]));
      const auto found = to.Find(payloads[i].handle, sizes[i]);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(memory_.Read(*found), sent[i]) << "payload " << i;
    }
  }

  // Until what was announced has come and the sender knows that it went.
  bool AwaitArrival(ChannelPair& pair) {
    const std::array<const ByteChannel*, 2> both = {pair.connected.get(), pair.accepted.get()};
    while (true) {
      const bool arriving = pair.accepted->side_channel()->arriving();
      const bool reads = Reads(*pair.connected) && (arriving || Reads(*pair.accepted));
      if (!reads || !arriving) return reads;
      if (!AwaitEventOfAny(both)) return false;
    }
  }
  bool Reads(ByteChannel& channel) {
    std::byte byte;
    const iovec part = {&byte, 1};
    const auto count = channel.Read({&part, 1});
    EXPECT_TRUE(count.ok()) << count.status();
    return count.ok();
  }
  void AwaitAborts(int count) {
    while (fake_.aborts < count) std::this_thread::yield();
  }

  FakeNccl& fake_ = TheFakeNccl();
  PayloadMemory memory_{&EmulatedGpu()};
  absl::Status accepted_status_;
};

}  // namespace tandem
