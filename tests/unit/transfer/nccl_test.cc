// KV by NCCL on the emulated GPU, with the stand-in for the library (tests/simt/fake_nccl.cc): what
// arrives, and how connections end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tests/simt/simt.h"
#include "tests/support/channel_pair.h"
#include "tests/support/nccl_fixture.h"
#include "tests/support/payload_memory.h"
#include "transfer/nccl/nccl_library.h"
#include "transfer/tcp/tcp_medium.h"

namespace tandem {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

std::vector<std::byte> RandomBytes(std::mt19937_64& random, size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

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
  absl::Status FailToConnect(NcclMedium& from, NcclMedium& to) {
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
  void GiveUpWhileConnecting(NcclMedium& from, NcclMedium& to, int steps) {
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
      if (!channel.lane()->arriving()) {
        const absl::StatusOr<size_t> count = channel.Read({&part, 1});
        if (!count.ok()) return count.status();
        EXPECT_EQ(*count, 0u);
      }
      if (!AwaitEvent(channel)) return absl::OkStatus();
    }
  }

  // One operation with payloads of these sizes from one side to the other.
  void SendAndCheck(ChannelPair& pair, const std::vector<size_t>& sizes, std::mt19937_64& random) {
    PayloadLane& from = *pair.connected->lane();
    PayloadLane& to = *pair.accepted->lane();
    std::vector<std::vector<std::byte>> sent;
    std::vector<LanePayload> payloads;
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
      const auto found = to.Find(payloads[i].place, sizes[i]);
      ASSERT_TRUE(found.ok()) << found.status();
      EXPECT_EQ(memory_.Read(*found), sent[i]) << "payload " << i;
    }
  }

  // Until what was announced has come and the sender knows that it went.
  bool AwaitArrival(ChannelPair& pair) {
    const std::array<const ByteChannel*, 2> both = {pair.connected.get(), pair.accepted.get()};
    while (true) {
      const bool arriving = pair.accepted->lane()->arriving();
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

TEST_F(NcclTest, OperationsOfManySizesArrive) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  ASSERT_NE(pair.connected->lane(), nullptr);
  std::mt19937_64 random(11);
  SendAndCheck(pair, {1}, random);
  SendAndCheck(pair, {size_t{256} << 10}, random);
  SendAndCheck(pair, std::vector<size_t>(512, 512), random);
  for (int round = 0; round < 20; ++round) {
    std::vector<size_t> sizes;
    for (size_t left = 256 << 10; left > 0 && sizes.size() < 512;) {
      sizes.push_back(1 + random() % std::min<size_t>(left, 1 + random() % 40'000));
      left -= sizes.back();
    }
    SendAndCheck(pair, sizes, random);
  }
  EXPECT_EQ(fake_.communicators, 2);
}

TEST_F(NcclTest, PlacesOutsideOfTheOperationAreRefused) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  PayloadLane& lane = *pair.accepted->lane();
  EXPECT_EQ(lane.Find(0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  for (const uint32_t bytes : {0u, 1u << 20, ~0u}) {
    EXPECT_EQ(lane.Expect(bytes).code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
  std::mt19937_64 random(5);
  SendAndCheck(pair, {1000}, random);
  EXPECT_TRUE(lane.Find(0, 1024).ok());  // an operation's end is rounded up
  for (const auto& [place, bytes] :
       std::vector<std::pair<uint64_t, size_t>>{{0, 0},
                                                {0, 1025},
                                                {1024, 1},
                                                {1025, 0},
                                                {~uint64_t{0}, 2},
                                                {1, ~size_t{0}},
                                                {uint64_t{1} << 32, 1}}) {
    EXPECT_EQ(lane.Find(place, bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << place << " " << bytes;
  }
  // What the next operation brings has other places.
  SendAndCheck(pair, {1000}, random);
  EXPECT_FALSE(lane.Find(0, 1000).ok());
  EXPECT_TRUE(lane.Find(uint64_t{1} << 32, 1000).ok());
  // Who sends receives nothing.
  EXPECT_EQ(pair.connected->lane()->Expect(128).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(lane.room().payloads, 0u);
}

TEST_F(NcclTest, SendSlotsAreSharedAndComeBack) {
  NcclOptions options = SmallNccl();
  options.send_slots = 1;
  const auto from = OpenSmallNccl(options);
  const auto to = OpenSmallNccl();
  ChannelPair one = ConnectPair(*from, *to);
  ChannelPair two = ConnectPair(*from, *to);
  ASSERT_TRUE(one.accepted && two.accepted);
  const std::span<std::byte> at = memory_.New(100);
  memory_.Write(at, std::vector<std::byte>(100));
  LanePayload payload = {.bytes = at};
  const auto announced = one.connected->lane()->Offer({&payload, 1});
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_EQ(two.connected->lane()->room().payloads, 0u);
  ASSERT_EQ(one.accepted->lane()->Expect(*announced), absl::OkStatus());
  ASSERT_TRUE(AwaitArrival(one));
  while (one.connected->lane()->room().payloads == 0) {
    ASSERT_TRUE(Reads(*one.connected));
    ASSERT_TRUE(AwaitEvent(*one.connected));
  }
  // The other one is told by an event.
  ASSERT_TRUE(AwaitEvent(*two.connected));
  ASSERT_TRUE(Reads(*two.connected));
  EXPECT_EQ(two.connected->lane()->room().payloads, 512u);
  EXPECT_FALSE(HasEventAtOnce(*two.connected));
}

TEST_F(NcclTest, AThousandCommunicatorsLeaveNothing) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  const int aborts = fake_.aborts;
  const size_t memory = EmulatedGpu().Memory()->own_bytes;
  const int64_t allocations = simt::Counts().allocations;
  for (int cycle = 0; cycle < 1000; ++cycle) {
    if (cycle % 5 == 0) {
      GiveUpWhileConnecting(*from, *to, cycle / 5 % 6);
    } else {
      ChannelPair pair = ConnectPair(*from, *to);
      ASSERT_TRUE(pair.accepted) << cycle;
      if (cycle % 5 == 1) {
        EXPECT_EQ(pair.accepted->lane()->Expect(128), absl::OkStatus());
      }
    }
    while (fake_.communicators > 0) std::this_thread::yield();
  }
  EXPECT_GE(fake_.aborts, aborts + 1600);
  EXPECT_EQ(EmulatedGpu().Memory()->own_bytes, memory);
  EXPECT_EQ(simt::Counts().allocations, allocations) << "all is set aside at the start";
  // All slots are there again.
  std::vector<ChannelPair> pairs;
  for (size_t i = 0; i < SmallNccl().receive_slots; ++i) {
    ASSERT_TRUE(pairs.emplace_back(ConnectPair(*from, *to)).accepted) << i;
  }
}

// NCCL listens for those that never come.
TEST_F(NcclTest, IdsThatNobodyUsesAreBounded) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  const int ids = fake_.ids;
  fake_.init_hangs = true;
  for (int cycle = 0; cycle < 300; ++cycle) {
    GiveUpWhileConnecting(*from, *to, 2);
    while (fake_.communicators > 0) std::this_thread::yield();
  }
  EXPECT_EQ(fake_.ids, ids + 256);
  fake_.init_hangs = false;
  EXPECT_EQ(FailToConnect(*from, *to).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(accepted_status_), HasSubstr("restart this worker"));
}

TEST_F(NcclTest, AConnectionWithoutASlotIsRefused) {
  NcclOptions options = SmallNccl();
  options.receive_slots = 1;
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl(options);
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  const absl::Status status = FailToConnect(*from, *to);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(accepted_status_.code(), absl::StatusCode::kResourceExhausted) << accepted_status_;
  const int aborts = fake_.aborts;
  pair = {};
  AwaitAborts(aborts + 2);
  EXPECT_TRUE(ConnectPair(*from, *to).accepted) << "the slot has not come back";
}

TEST_F(NcclTest, VersionsThatDifferAreNamed) {
  const auto from = OpenSmallNccl();
  fake_.version = 23004;
  const auto to = OpenSmallNccl();
  const absl::Status status = FailToConnect(*from, *to);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("2.28.9"), HasSubstr("2.30.4")));
  EXPECT_EQ(accepted_status_.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(accepted_status_), AllOf(HasSubstr("2.28.9"), HasSubstr("2.30.4")));
  EXPECT_EQ(fake_.communicators, 0);
}

TEST_F(NcclTest, SizesThatDifferAreNamed) {
  NcclOptions options = SmallNccl();
  options.chunk_bytes = 64 << 10;
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl(options);
  const absl::Status status = FailToConnect(*from, *to);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("operations of 130944 bytes"));
}

TEST_F(NcclTest, ALibraryThatIsMissingOrTooOldSaysWhatToInstall) {
  const char* const missing[] = {"libno-such-nccl.so.2"};
  const absl::Status none = NcclLibrary::Open(missing).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(none), AllOf(HasSubstr("libno-such-nccl.so.2"), HasSubstr("install")));
  const char* const another[] = {"libm.so.6"};
  EXPECT_THAT(Message(NcclLibrary::Open(another).status()), HasSubstr("ncclGetVersion"));
  fake_.version = 22100;
  const absl::Status old = NcclMedium::Open(EmulatedGpu(), SmallNccl()).status();
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(old), HasSubstr("2.21.0 is too old"));
}

TEST_F(NcclTest, ADeviceOfTheHostHasNone) {
  const auto cpu = OpenBackend("cpu", {});
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(NcclMedium::Open(*cpu->device, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  NcclOptions options = SmallNccl();
  options.chunk_bytes = size_t{64} << 20;
  EXPECT_EQ(NcclMedium::Open(EmulatedGpu(), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(NcclTest, SaysWhatItCarriesAndWhatItSetsAside) {
  const auto medium = OpenSmallNccl();
  EXPECT_TRUE(medium->has_lanes());
  const std::vector<std::byte> bytes((256 << 10) + 1);
  EXPECT_EQ(medium->MayCarry(std::span(bytes).first(256 << 10)), absl::OkStatus());
  EXPECT_EQ(medium->MayCarry(bytes).code(), absl::StatusCode::kInvalidArgument);
  const size_t slots = SmallNccl().send_slots + SmallNccl().receive_slots;
  EXPECT_GE(medium->buffer_bytes(), slots * (256 << 10));
  EXPECT_LE(medium->buffer_bytes(), slots * (512 << 10));
}

TEST_F(NcclTest, AWorkerWithoutSlotsForADirectionHasOnlyTheOther) {
  NcclOptions options = SmallNccl();
  options.send_slots = 0;
  const auto receives = OpenSmallNccl(options);
  options = SmallNccl();
  options.receive_slots = 0;
  const auto sends = OpenSmallNccl(options);
  ChannelPair pair = ConnectPair(*sends, *receives);
  ASSERT_TRUE(pair.accepted);
  std::mt19937_64 random(2);
  SendAndCheck(pair, {5000}, random);
  EXPECT_EQ(receives->Connect(sends->address()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(FailToConnect(*OpenSmallNccl(), *sends).code(), absl::StatusCode::kUnavailable);
}

TEST_F(NcclTest, AnInitThatNeverEndsEndsAtItsDeadline) {
  NcclOptions options = SmallNccl();
  options.init_timeout = milliseconds(50);
  const auto from = OpenSmallNccl(options);
  const auto to = OpenSmallNccl();
  fake_.init_hangs = true;
  const absl::Status status = FailToConnect(*from, *to);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("no NCCL communicator within 50 ms"));
}

TEST_F(NcclTest, AnInitThatFailsSaysWhatNcclSays) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  fake_.init_fails = true;
  const absl::Status status = FailToConnect(*from, *to);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(accepted_status_.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(accepted_status_),
              AllOf(HasSubstr("unhandled system error"), HasSubstr("told to fail")));
}

TEST_F(NcclTest, AnErrorOfTheNetworkEndsTheConnectionWithNcclsWords) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  fake_.operations_until_error = 0;
  ASSERT_EQ(pair.accepted->lane()->Expect(128), absl::OkStatus());
  const absl::Status status = AwaitFailure(*pair.accepted);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("network error"), HasSubstr("has failed")));
  EXPECT_FALSE(pair.accepted->lane()->arriving());
  const iovec nothing = {nullptr, 0};
  EXPECT_EQ(pair.accepted->Write({&nothing, 1}).status(), status);
}

TEST_F(NcclTest, AnOperationThatIsNotDoneInTimeEndsTheConnection) {
  NcclOptions options = SmallNccl();
  options.operation_grace = milliseconds(30);
  const auto from = OpenSmallNccl(options);
  const auto to = OpenSmallNccl(options);
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  std::mt19937_64 random(1);
  SendAndCheck(pair, {100}, random);  // the first may take longer
  const std::span<std::byte> at = memory_.New(256 << 10);
  memory_.Write(at, RandomBytes(random, at.size()));
  LanePayload payload = {.bytes = at};
  // Nobody receives: larger than what lies between the two.
  ASSERT_TRUE(pair.connected->lane()->Offer({&payload, 1}).ok());
  const absl::Status status = AwaitFailure(*pair.connected);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("262144 bytes is not done"));
}

TEST_F(NcclTest, APeerThatLeavesInTheMiddleIsNoticed) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  ASSERT_EQ(pair.accepted->lane()->Expect(1 << 10), absl::OkStatus());
  pair.connected.reset();
  const absl::Status status = AwaitFailure(*pair.accepted);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("in the middle of an operation"));
}

TEST_F(NcclTest, AnAbortThatBlocksKeepsItsSlotsAndIsReported) {
  NcclOptions options = SmallNccl();
  options.receive_slots = 2;
  options.abort_patience = milliseconds(40);
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl(options);
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  EXPECT_EQ(to->health(), absl::OkStatus());
  fake_.abort_blocks = true;
  ASSERT_EQ(pair.accepted->lane()->Expect(128), absl::OkStatus());
  pair.accepted.reset();
  ChannelPair second = ConnectPair(*from, *to);
  ASSERT_TRUE(second.accepted) << "there are two slots";
  EXPECT_EQ(FailToConnect(*from, *to).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(accepted_status_.code(), absl::StatusCode::kResourceExhausted)
      << "the slot of the communicator that is being aborted is nobody's";
  while (to->health().ok()) std::this_thread::yield();
  EXPECT_THAT(Message(to->health()), HasSubstr("restart this worker"));
  EXPECT_EQ(to->Connect(from->address()).status().code(), absl::StatusCode::kUnavailable);

  const int aborts = fake_.aborts;
  fake_.abort_blocks = false;
  AwaitAborts(aborts + 1);
  while (!to->health().ok()) std::this_thread::yield();
}

TEST_F(NcclTest, AMediumDoesNotWaitForEverForAnAbort) {
  NcclOptions options = SmallNccl();
  options.abort_patience = milliseconds(20);
  const int aborts = fake_.aborts;
  {
    const auto from = OpenSmallNccl(options);
    const auto to = OpenSmallNccl(options);
    ChannelPair pair = ConnectPair(*from, *to);
    ASSERT_TRUE(pair.accepted);
    fake_.abort_blocks = true;
  }
  EXPECT_EQ(fake_.aborts, aborts);
  EXPECT_EQ(fake_.communicators, 2);
  fake_.abort_blocks = false;
  AwaitAborts(aborts + 2);
}

TEST_F(NcclTest, WhatIsNoSetupEndsTheConnection) {
  const int ids = fake_.ids;
  const auto to = OpenSmallNccl();
  const auto stranger = *TcpMedium::Open({});
  auto connecting = stranger->Connect(to->address());
  ASSERT_TRUE(connecting.ok());
  while (!*(*connecting)->Establish()) ASSERT_TRUE(AwaitEvent(**connecting));
  const auto accepted = AwaitConnection(*to);
  ASSERT_TRUE(accepted);
  std::array<std::byte, 300> nonsense{};
  const iovec part = {nonsense.data(), nonsense.size()};
  ASSERT_EQ((*connecting)->Write({&part, 1}).value_or(0), nonsense.size());
  absl::StatusOr<bool> established = false;
  while (established.ok()) {
    established = accepted->Establish();
    ASSERT_TRUE(!established.ok() || AwaitEvent(*accepted));
  }
  EXPECT_EQ(established.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(fake_.ids, ids);
}

}  // namespace
}  // namespace tandem
