// What only shared places can do: memory is shared whole, found where it lies and nowhere else, and
// taken only by who can.
#include "transfer/media/ipc/ipc_medium.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/forwarding_device.h"
#include "tests/support/ipc_fixture.h"
#include "tests/support/late_device.h"
#include "transfer/framed/extent_stream.h"

namespace tandem::ipc_medium_test {
namespace {

using ::testing::HasSubstr;

TEST(IpcMedium, MemoryThatCannotBeSharedIsRefused) {
  LateDevice without;
  EXPECT_EQ(OpenIpcMedium({.device = &without}).status().code(), absl::StatusCode::kUnimplemented);
  const DeviceBuffer own = *Cpu().Allocate(4096);
  EXPECT_EQ(OpenIpcMedium({.device = &Cpu(), .shared = {own.bytes()}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const DeviceBuffer shared = *Cpu().AllocateShared(4096);
  EXPECT_EQ(OpenIpcMedium({.device = &Cpu(), .shared = {shared.bytes().first(64)}}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      OpenIpcMedium({.device = &Cpu(), .shared = {std::span<const std::byte>()}}).status().code(),
      absl::StatusCode::kInvalidArgument);
  const std::vector<std::span<const std::byte>> nine(9, shared.bytes());
  const absl::Status many = OpenIpcMedium({.device = &Cpu(), .shared = nine}).status();
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(many), HasSubstr("at most 8"));
}

TEST(IpcMedium, SetsNothingAsideButHashes) {
  EXPECT_EQ(NewReceiver()->buffer_bytes(), ExtentStream::kMaxExtents * sizeof(uint64_t));
}

TEST(IpcMedium, CarriesOnlyWhatItShares) {
  const Sender sender;
  const Medium& medium = *sender.medium;
  EXPECT_TRUE(medium.has_side_channels());
  const std::span<const std::byte> pool = sender.pool.bytes();
  EXPECT_EQ(medium.MayCarry(pool), absl::OkStatus());
  EXPECT_EQ(medium.MayCarry(pool.last(1)), absl::OkStatus());
  EXPECT_EQ(medium.MayCarry(sender.probes.bytes()), absl::OkStatus());
  const std::vector<std::byte> elsewhere(100);
  const std::array<std::span<const std::byte>, 4> outside = {
      std::span(pool.data() - 1, 2), std::span(pool.data() + pool.size() - 1, 2),
      std::span(pool.data() + pool.size(), 1), std::span(elsewhere)};
  for (const std::span<const std::byte> bytes : outside) {
    const absl::Status status = medium.MayCarry(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), HasSubstr(fmt::format("{} bytes", bytes.size())));
  }
}

TEST(IpcMedium, PayloadsAreFoundWhereTheyLie) {
  Sender sender;
  const auto receiver = NewReceiver();
  const ChannelPair pair = ConnectPair(*sender.medium, *receiver);
  ASSERT_TRUE(pair.accepted);
  std::array<OfferedPayload, 3> payloads = {{{.bytes = sender.pool.bytes().first(1)},
                                             {.bytes = sender.pool.bytes().last(5000)},
                                             {.bytes = sender.probes.bytes()}}};
  EXPECT_EQ(pair.connected->side_channel()->Offer(payloads).value(), 0u) << "something to announce";
  for (const OfferedPayload& payload : payloads) {
    EXPECT_EQ(payload.hash, Hash64(payload.bytes));
    const auto found = pair.accepted->side_channel()->Find(payload.handle, payload.bytes.size());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_NE(found->data(), payload.bytes.data());
    EXPECT_TRUE(std::ranges::equal(*found, payload.bytes));
  }
  // No copy of the moment of the Offer.
  const auto found = *pair.accepted->side_channel()->Find(payloads[1].handle, 5000);
  sender.pool.bytes().last(1)[0] ^= std::byte{1};
  EXPECT_TRUE(std::ranges::equal(found, payloads[1].bytes));
  EXPECT_NE(Hash64(found), payloads[1].hash);
}

TEST(IpcMedium, PlacesOutsideOfTheMemoryAreNotFound) {
  const Sender sender;
  const auto receiver = NewReceiver();
  const ChannelPair pair = ConnectPair(*sender.medium, *receiver);
  ASSERT_TRUE(pair.accepted);
  const SideChannel& side_channel = *pair.accepted->side_channel();
  constexpr uint64_t kProbes = uint64_t{1} << kSegmentOffsetBits;
  EXPECT_TRUE(side_channel.Find(0, kPoolBytes).ok());
  EXPECT_TRUE(side_channel.Find(kPoolBytes, 0).ok());
  EXPECT_TRUE(side_channel.Find(kProbes | 4095, 1).ok());
  const std::pair<uint64_t, size_t> outside[] = {{0, kPoolBytes + 1},
                                                 {kPoolBytes, 1},
                                                 {1, kPoolBytes},
                                                 {kProbes | 4095, 2},
                                                 {kProbes - 1, 1},
                                                 {kProbes - 1, ~size_t{0}},
                                                 {uint64_t{2} << kSegmentOffsetBits, 0},
                                                 {~uint64_t{0}, 1},
                                                 {1, ~size_t{0}}};
  for (const auto& [place, bytes] : outside) {
    EXPECT_EQ(side_channel.Find(place, bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << place << " " << bytes;
  }
  EXPECT_EQ(pair.accepted->side_channel()->Expect(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.connected->side_channel()->Expect(1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(pair.connected->side_channel()->Find(0, 1).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(IpcMedium, WhoSharesNothingConnectsAllTheSame) {
  const auto one = NewReceiver();
  const auto other = NewReceiver();
  const ChannelPair pair = ConnectPair(*one, *other);
  ASSERT_TRUE(pair.accepted);
  EXPECT_FALSE(pair.accepted->side_channel()->Find(0, 0).ok());
}

// A device that does not take others' memory.
class RefusingDevice final : public ForwardingDevice {
 public:
  explicit RefusingDevice(absl::Status why) : ForwardingDevice(Cpu()), why_(std::move(why)) {}
  absl::StatusOr<DeviceBuffer> OpenShared(const MemoryHandle&) override { return why_; }

 private:
  const absl::Status why_;
};

// How establishing ends on both sides where one sends to a worker with `device`.
absl::StatusCode OutcomeWith(Device& device) {
  const Sender sender;
  const auto receiver = NewReceiver(device);
  const auto connected = *sender.medium->Connect(receiver->address());
  const auto accepted = AwaitConnection(*receiver);
  const absl::StatusCode outcome = accepted->Establish().status().code();
  EXPECT_TRUE(AwaitEvent(*connected));
  EXPECT_EQ(connected->Establish().status().code(), outcome);
  return outcome;
}

TEST(IpcMedium, ThePeerIsToldWhenItsMemoryIsNotTaken) {
  RefusingDevice other_kind(FailedPrecondition("memory of another kind"));
  EXPECT_EQ(OutcomeWith(other_kind), absl::StatusCode::kFailedPrecondition);
  RefusingDevice no_handle(InvalidArgument("no handle"));
  EXPECT_EQ(OutcomeWith(no_handle), absl::StatusCode::kFailedPrecondition);
  RefusingDevice full(ResourceExhausted("no addresses"));
  EXPECT_EQ(OutcomeWith(full), absl::StatusCode::kUnavailable);
}

// A device of another kind than the cpu's: its handles say so.
class ForeignDevice final : public ForwardingDevice {
 public:
  ForeignDevice() : ForwardingDevice(Cpu()) {}
  absl::StatusOr<MemoryHandle> Share(std::span<const std::byte> memory) override {
    ASSIGN_OR_RETURN(MemoryHandle handle, Cpu().Share(memory));
    handle.kind = MemoryHandle::Kind::kDeviceFile;
    return handle;
  }
};

TEST(IpcMedium, MemoryOfAnotherKindOfDeviceIsNotTaken) {
  ForeignDevice gpu;
  const Sender sender(gpu);
  const auto receiver = NewReceiver();
  const auto connected = *sender.medium->Connect(receiver->address());
  const absl::Status refused = AwaitConnection(*receiver)->Establish().status();
  EXPECT_THAT(Message(refused), HasSubstr("kind 2"));
  EXPECT_EQ(connected->Establish().status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tandem::ipc_medium_test
