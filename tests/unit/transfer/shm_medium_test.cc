// What shared memory alone can do to a worker: areas run out, hold what the peer has not consumed,
// and peers share memory that is not what they say.
#include "transfer/media/shm/shm_medium.h"

#include <sched.h>

#include <array>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/ipc_fixture.h"
#include "transfer/media/host_medium.h"

namespace tandem::shm_medium_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kAreaBytes = 64 << 10;
constexpr size_t kAreas = 2;
constexpr size_t kMaxPayload = 16 << 10;

std::unique_ptr<Medium> NewMedium(size_t max_payload_bytes = kMaxPayload) {
  return *OpenShmMedium({.device = &Cpu(),
                         .buffer_bytes = kAreas * kAreaBytes,
                         .area_bytes = kAreaBytes,
                         .max_payload_bytes = max_payload_bytes});
}

TEST(ShmMedium, OptionsThatCannotBeAreRefused) {
  for (const ShmOptions& options :
       {ShmOptions{.buffer_bytes = 1 << 20}, ShmOptions{.area_bytes = 1 << 20},
        ShmOptions{.area_bytes = 0, .max_payload_bytes = 0},
        ShmOptions{.buffer_bytes = 0, .area_bytes = kMaxAreaBytes + 1},
        ShmOptions{.max_payload_bytes = (2 << 20) + 1}}) {
    EXPECT_EQ(OpenShmMedium(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(ShmMedium, LargerPayloadsThanTheMediumWasMadeForAreRefused) {
  const auto medium = NewMedium();
  const std::vector<std::byte> payload(kMaxPayload + 1);
  EXPECT_EQ(medium->MayCarry(std::span(payload).first(kMaxPayload)), absl::OkStatus());
  const absl::Status status = medium->MayCarry(payload);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("16385"));
}

TEST(ShmMedium, PayloadsArriveAsCopiesOfTheMomentOfTheOffer) {
  const auto from = NewMedium();
  const auto to = NewMedium();
  const ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_NE(pair.accepted, nullptr);
  std::vector<std::byte> bytes(kMaxPayload);
  FillPattern(bytes, 7);
  const std::vector<std::byte> before = bytes;
  std::array<OfferedPayload, 2> payloads = {
      {{.bytes = std::span(bytes).first(1)}, {.bytes = bytes}}};
  EXPECT_EQ(pair.connected->side_channel()->Offer(payloads).value(), 0u) << "nothing to announce";
  bytes[0] ^= std::byte{1};
  for (const OfferedPayload& payload : payloads) {
    const auto found = pair.accepted->side_channel()->Find(payload.handle, payload.bytes.size());
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(payload.hash, Hash64(*found));
    EXPECT_TRUE(std::ranges::equal(*found, std::span(before).first(found->size())));
  }
}

TEST(ShmMedium, WhatThePeerConsumedIsRoomForMore) {
  constexpr size_t kHalfArea = kAreaBytes / 2;
  const auto from = NewMedium(kHalfArea);
  const auto to = NewMedium(kHalfArea);
  const ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_NE(pair.accepted, nullptr);
  const std::vector<std::byte> bytes(kHalfArea, std::byte{7});
  std::vector<OfferedPayload> payloads = {{.bytes = bytes}, {.bytes = bytes}};
  SideChannel& sending = *pair.connected->side_channel();
  ASSERT_TRUE(sending.Offer(payloads).ok());
  const SideChannel::Room full = sending.room(2 * kHalfArea);
  EXPECT_EQ(full.payloads, 0u);
  EXPECT_TRUE(full.peer_holds_it) << "a peer that consumes nothing loses its connection at last";
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(sending.room(kHalfArea).bytes, kHalfArea) << i;
    OfferedPayload next = {.bytes = bytes};
    ASSERT_TRUE(sending.Offer({&next, 1}).ok());
    EXPECT_EQ(sending.room(2 * kHalfArea).bytes, 0u) << i;
  }
  EXPECT_EQ(sending.room(0).bytes, kAreaBytes);
}

TEST(ShmMedium, HandlesOutsideOfTheAreaAreNotFound) {
  const auto from = NewMedium();
  const auto to = NewMedium();
  const ChannelPair pair = ConnectPair(*from, *to);
  ASSERT_NE(pair.accepted, nullptr);
  const SideChannel& receiving = *pair.accepted->side_channel();
  EXPECT_TRUE(receiving.Find(0, kAreaBytes).ok());
  EXPECT_TRUE(receiving.Find(kAreaBytes - 1, 1).ok());
  const std::pair<uint64_t, size_t> outside[] = {
      {0, kAreaBytes + 1}, {kAreaBytes, 1}, {1, kAreaBytes}, {~uint64_t{0}, 1}, {1, ~size_t{0}}};
  for (const auto& [handle, bytes] : outside) {
    EXPECT_EQ(receiving.Find(handle, bytes).status().code(), absl::StatusCode::kInvalidArgument)
        << handle << " " << bytes;
  }
}

cpu_set_t AllowedCores() {
  cpu_set_t cores;
  EXPECT_EQ(sched_getaffinity(0, sizeof(cores), &cores), 0);
  return cores;
}

// How often in 100 payloads of `bytes` the receiving end changes its core. The calling thread is
// both ends, so the sender's core is its own.
int CoresLeft(size_t bytes) {
  const auto from = NewMedium();
  const auto to = NewMedium();
  const ChannelPair pair = ConnectPair(*from, *to);
  const std::vector<std::byte> payload(bytes);
  int left = 0;
  for (int i = 0; i < 100; ++i) {
    OfferedPayload offered = {.bytes = payload};
    EXPECT_GT(pair.connected->side_channel()->room(0).bytes, 0u);
    EXPECT_TRUE(pair.connected->side_channel()->Offer({&offered, 1}).ok());
    const int core = sched_getcpu();
    EXPECT_TRUE(pair.accepted->side_channel()->Find(offered.handle, bytes).ok());
    left += sched_getcpu() != core ? 1 : 0;
  }
  return left;
}

// The kernel may move the thread as well, so a few cases may go either way.
TEST(ShmMedium, TheReceiverLeavesTheCoreOfASenderThatFillsTheArea) {
  const cpu_set_t allowed = AllowedCores();
  if (CPU_COUNT(&allowed) < 2) GTEST_SKIP() << "this process may run on one core only";
  EXPECT_GT(CoresLeft(kAreaBytes / 4), 50);
  const cpu_set_t afterwards = AllowedCores();
  EXPECT_TRUE(CPU_EQUAL(&allowed, &afterwards)) << "it may use all cores that it might before";
}

TEST(ShmMedium, TheReceiverStaysWhereAFewBytesCameFrom) {
  EXPECT_LT(CoresLeft(kAreaBytes / 4 - 1), 50);
}

TEST(ShmMedium, AReceiverWithOneCoreStaysThere) {
  std::thread([] {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &only);
    ASSERT_EQ(sched_setaffinity(0, sizeof(only), &only), 0);
    EXPECT_EQ(CoresLeft(kAreaBytes / 4), 0);
    const cpu_set_t afterwards = AllowedCores();
    EXPECT_TRUE(CPU_EQUAL(&only, &afterwards));
  }).join();
}

TEST(ShmMedium, ReachesItsOwnHostOnly) {
  const auto medium = NewMedium();
  std::string elsewhere = medium->address();
  elsewhere[0] = elsewhere[0] == 'f' ? '0' : 'f';
  const absl::Status status = medium->MayReach(elsewhere);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("another host"));
}

TEST(ShmMedium, ASideThatOnlyReceivesTakesNoSharedMemory) {
  const auto receiver = *OpenShmMedium({.device = &Cpu(), .buffer_bytes = 0});
  EXPECT_LT(receiver->buffer_bytes(), kAreaBytes);
  const auto sender = NewMedium();
  EXPECT_NE(ConnectPair(*sender, *receiver).accepted, nullptr);
  const absl::Status status = receiver->Connect(sender->address()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("no shared memory left"));
}

TEST(ShmMedium, WithoutAFreeAreaThereIsNoConnection) {
  const auto far = NewMedium();
  const auto near = NewMedium();
  std::array<ChannelPair, kAreas> pairs = {ConnectPair(*near, *far), ConnectPair(*near, *far)};
  const absl::Status status = near->Connect(far->address()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr("no shared memory left"));
  EXPECT_THAT(Message(status), HasSubstr("--kv-buffer-bytes"));
  pairs[0] = {};
  EXPECT_NE(ConnectPair(*near, *far).accepted, nullptr) << "the area was not given back";
}

// How establishing ends on the accepting side for a peer that shares `files`, and what it answers.
std::pair<absl::Status, absl::StatusCode> Greet(const MemoryGreeting& greeting,
                                                const std::vector<UniqueFd>& files) {
  const auto medium = NewMedium();
  const UniqueFd socket = *ConnectUnix(ParseHostAddress(medium->address())->name);
  std::vector<int> numbers;
  for (const UniqueFd& file : files) numbers.push_back(file.get());
  EXPECT_EQ(SendWithDescriptors(socket.get(), EncodeMemoryGreeting(greeting), numbers),
            absl::OkStatus());
  const auto channel = AwaitConnection(*medium);
  const absl::Status status = channel->Establish().status();
  std::array<std::byte, kMemoryAnswerBytes> answer;
  EXPECT_EQ(recv(socket.get(), answer.data(), answer.size(), 0), ssize_t{kMemoryAnswerBytes});
  return {status, *ParseMemoryAnswer(answer)};
}

TEST(ShmMedium, MemoryThatIsNotWhatThePeerSaysIsNotMapped) {
  constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const MemoryGreeting area = HostFiles({kAreaBytes});
  EXPECT_EQ(Greet(area, Files({kAreaBytes}, kAllSeals)).first, absl::OkStatus());

  const auto expect_refused = [](const std::pair<absl::Status, absl::StatusCode>& outcome,
                                 const std::string& why) {
    EXPECT_EQ(outcome.first.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(outcome.second, absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(outcome.first), HasSubstr(why));
  };
  expect_refused(Greet(area, {}), "0 files");
  expect_refused(
      Greet(HostFiles({kAreaBytes, kAreaBytes}), Files({kAreaBytes, kAreaBytes}, kAllSeals)),
      "2 pieces of memory");
  expect_refused(Greet(area, Files({4096}, kAllSeals)), "4096");
  expect_refused(Greet(area, Files({kAreaBytes}, F_SEAL_GROW)), "not sealed");
  expect_refused(Greet(HostFiles({kMaxAreaBytes + 1}), Files({kAreaBytes}, kAllSeals)),
                 std::to_string(kMaxAreaBytes));
  MemoryGreeting of_a_gpu = area;
  of_a_gpu.segments[0].kind = MemoryHandle::Kind::kDeviceFile;
  expect_refused(Greet(of_a_gpu, Files({kAreaBytes}, kAllSeals)), "pieces of memory");
}

// A KV pool that is shared over ipc may only be read, and a GPU could not be given such pages.
TEST(ShmMedium, MemoryThatMayOnlyBeReadIsRefused) {
  const DeviceBuffer pool = *Cpu().AllocateShared(kAreaBytes);
  std::vector<UniqueFd> files;
  files.push_back(std::move(Cpu().Share(pool.bytes())->file));
  EXPECT_FALSE(Greet(HostFiles({kAreaBytes}), files).first.ok());
}

}  // namespace
}  // namespace tandem::shm_medium_test
