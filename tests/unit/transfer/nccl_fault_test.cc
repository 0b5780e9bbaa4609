// KV by NCCL on the emulated GPU: communicators that are never made, operations that fail or hang,
// aborts that do not return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "tests/support/nccl_fixture.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem::nccl_fault_test {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
  ASSERT_EQ(pair.accepted->side_channel()->Expect(128), absl::OkStatus());
  const absl::Status status = AwaitFailure(*pair.accepted);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("network error"), HasSubstr("has failed")));
  EXPECT_FALSE(pair.accepted->side_channel()->arriving());
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
  OfferedPayload payload = {.bytes = at};
  // Nobody receives: larger than what lies between the two.
  ASSERT_TRUE(pair.connected->side_channel()->Offer({&payload, 1}).ok());
  const absl::Status status = AwaitFailure(*pair.connected);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("262144 bytes is not done"));
}

TEST_F(NcclTest, APeerThatLeavesInTheMiddleIsNoticed) {
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl();
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  ASSERT_EQ(pair.accepted->side_channel()->Expect(1 << 10), absl::OkStatus());
  pair.connected.reset();
  const absl::Status status = AwaitFailure(*pair.accepted);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("in the middle of an operation"));
}

TEST_F(NcclTest, AnAbortThatBlocksKeepsItsSlots) {
  NcclOptions options = SmallNccl();
  options.receive_slots = 2;
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl(options);
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  fake_.abort_blocks = true;
  ASSERT_EQ(pair.accepted->side_channel()->Expect(128), absl::OkStatus());
  pair.accepted.reset();
  ChannelPair second = ConnectPair(*from, *to);
  ASSERT_TRUE(second.accepted) << "there are two slots";
  EXPECT_EQ(FailToConnect(*from, *to).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(accepted_status_.code(), absl::StatusCode::kResourceExhausted)
      << "the slot of the communicator that is being aborted is nobody's";
  EXPECT_EQ(to->health(), absl::OkStatus()) << "it may take a while";
  fake_.abort_blocks = false;
}

TEST_F(NcclTest, AnAbortThatBlocksForTooLongIsReported) {
  NcclOptions options = SmallNccl();
  options.abort_patience = milliseconds(40);
  const auto from = OpenSmallNccl();
  const auto to = OpenSmallNccl(options);
  ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_TRUE(pair.accepted);
  fake_.abort_blocks = true;
  pair.accepted.reset();
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
  const auto stranger = *OpenTcpMedium({});
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
}  // namespace tandem::nccl_fault_test
