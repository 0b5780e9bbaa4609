// KV by NCCL on the emulated GPU, with the stand-in for the library (tests/simt/fake_nccl.cc): what
// arrives, and who connects to whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/simt/simt.h"
#include "tests/support/nccl_fixture.h"
#include "transfer/media/nccl/communicator.h"

namespace tandem::nccl_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(NcclTest, OperationsOfManySizesArrive) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  ASSERT_NE(pair.connected->side_channel(), nullptr);
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
  SideChannel& side_channel = *pair.accepted->side_channel();
  EXPECT_EQ(side_channel.Find(0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  for (const uint32_t bytes : {0u, 1u << 20, ~0u}) {
    EXPECT_EQ(side_channel.Expect(bytes).code(), absl::StatusCode::kInvalidArgument) << bytes;
  }
  std::mt19937_64 random(5);
  SendAndCheck(pair, {1000}, random);
  EXPECT_TRUE(side_channel.Find(0, 1024).ok());  // an operation's end is rounded up
  for (const auto& [place, bytes] :
       std::vector<std::pair<uint64_t, size_t>>{{0, 0},
                                                {0, 1025},
                                                {1024, 1},
                                                {1025, 0},
                                                {~uint64_t{0}, 2},
                                                {1, ~size_t{0}},
                                                {uint64_t{1} << 32, 1}}) {
    EXPECT_EQ(side_channel.Find(place, bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << place << " " << bytes;
  }
  // What the next operation brings has other places.
  SendAndCheck(pair, {1000}, random);
  EXPECT_FALSE(side_channel.Find(0, 1000).ok());
  EXPECT_TRUE(side_channel.Find(uint64_t{1} << 32, 1000).ok());
  // Who sends receives nothing.
  EXPECT_EQ(pair.connected->side_channel()->Expect(128).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(side_channel.room(0).payloads, 0u);
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
  OfferedPayload payload = {.bytes = at};
  const auto announced = one.connected->side_channel()->Offer({&payload, 1});
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_EQ(two.connected->side_channel()->room(0).payloads, 0u);
  ASSERT_EQ(one.accepted->side_channel()->Expect(*announced), absl::OkStatus());
  ASSERT_TRUE(AwaitArrival(one));
  while (one.connected->side_channel()->room(0).payloads == 0) {
    ASSERT_TRUE(Reads(*one.connected));
    ASSERT_TRUE(AwaitEvent(*one.connected));
  }
  // The other one is told by an event.
  ASSERT_TRUE(AwaitEvent(*two.connected));
  ASSERT_TRUE(Reads(*two.connected));
  EXPECT_EQ(two.connected->side_channel()->room(0).payloads, 512u);
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
        EXPECT_EQ(pair.accepted->side_channel()->Expect(128), absl::OkStatus());
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
  const absl::Status old = OpenNcclMedium(EmulatedGpu(), SmallNccl()).status();
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(old), HasSubstr("2.21.0 is too old"));
}

TEST_F(NcclTest, ADeviceOfTheHostHasNone) {
  const auto cpu = OpenBackend("cpu", {});
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(OpenNcclMedium(*cpu->device, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  NcclOptions options = SmallNccl();
  options.chunk_bytes = size_t{64} << 20;
  EXPECT_EQ(OpenNcclMedium(EmulatedGpu(), options).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(NcclTest, SaysWhatItCarriesAndWhatItSetsAside) {
  const auto medium = OpenSmallNccl();
  EXPECT_TRUE(medium->has_side_channels());
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

}  // namespace
}  // namespace tandem::nccl_test
