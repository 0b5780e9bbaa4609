// Writes without a copy, over the loopback device: the system copies there all the same and says
// so, which is what the channel must hear.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/transport_probe.h"
#include "transfer/tcp/zero_copy_channel.h"

namespace tandem {
namespace {

using Bytes = std::vector<std::byte>;

struct Sockets {
  UniqueFd sender;
  UniqueFd receiver;
};

// Connected over TCP; the receiver is left blocking.
Sockets Connect() {
  UniqueFd listener = *Listen("127.0.0.1", 0);
  const HostPort place = {.host = "127.0.0.1", .port = std::to_string(LocalPort(listener))};
  Sockets sockets;
  sockets.sender = *StartConnect(Resolve(place, NameLookup::kNumericOnly)->front());
  pollfd watched = {listener.get(), POLLIN, 0};
  EXPECT_EQ(poll(&watched, 1, -1), 1);
  sockets.receiver = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  return sockets;
}

iovec Part(Bytes& bytes) { return {bytes.data(), bytes.size()}; }

void Await(const ByteChannel& channel, short events) {
  pollfd watched = {channel.fd(), events, 0};
  ASSERT_EQ(poll(&watched, 1, 60'000), 1) << "no event";
}

Bytes Receive(const UniqueFd& socket, size_t size) {
  Bytes bytes(size);
  EXPECT_EQ(recv(socket.get(), bytes.data(), size, MSG_WAITALL), static_cast<ssize_t>(size));
  return bytes;
}

class ZeroCopyTest : public ::testing::Test {
 protected:
  // Waits until the system is done with every write.
  void AwaitCompletions() {
    std::array<std::byte, 1> nothing;
    const iovec part = {nothing.data(), nothing.size()};
    while (channel_.held_bytes() > 0) {
      ASSERT_NO_FATAL_FAILURE(Await(channel_, 0));  // notes show as errors, unasked
      ASSERT_EQ(channel_.Read({&part, 1}).value_or(1), 0u);
    }
  }

  Sockets sockets_ = Connect();
  ZeroCopyChannel channel_{std::move(sockets_.sender)};
};

TEST_F(ZeroCopyTest, CompletionsComeAndACopyEndsIt) {
  ASSERT_EQ(channel_.zero_copy().gave_up, "");
  Bytes payload = PatternBytes(200'000, 1);
  const iovec part = Part(payload);
  const size_t first = channel_.Write({&part, 1}).value_or(0);
  ASSERT_GT(first, 0u);
  EXPECT_EQ(channel_.zero_copy().writes, 1u);
  EXPECT_EQ(channel_.held_bytes(), first);
  EXPECT_EQ(Receive(sockets_.receiver, first), Bytes(payload.begin(), payload.begin() + first));
  AwaitCompletions();
  EXPECT_EQ(channel_.zero_copy().gave_up, "the system copies all the same on the way to this peer")
      << "the loopback device copies";
  const size_t second = channel_.Write({&part, 1}).value_or(0);
  EXPECT_EQ(channel_.zero_copy().writes, 1u) << "a plain socket from now on";
  EXPECT_EQ(Receive(sockets_.receiver, second), Bytes(payload.begin(), payload.begin() + second));
}

TEST_F(ZeroCopyTest, SmallWritesGoPlainly) {
  Bytes small = PatternBytes(64, 1);
  const std::vector<iovec> heads(100, Part(small));
  EXPECT_EQ(channel_.Write(heads).value_or(0), 6400u);
  EXPECT_EQ(channel_.zero_copy().writes, 0u);
}

// Heads of frames are reused by the caller while the system still holds them in its queue.
TEST_F(ZeroCopyTest, SmallPartsMayChangeOnceTheyAreTaken) {
  const Bytes right_head = PatternBytes(64, 1);
  Bytes head = right_head;
  Bytes payload = PatternBytes(100'000, 2);
  const std::array<iovec, 4> parts = {Part(head), Part(payload), Part(head), Part(payload)};
  Bytes whole;
  for (const iovec& part : parts) {
    const auto* bytes = static_cast<const std::byte*>(part.iov_base);
    whole.insert(whole.end(), bytes, bytes + part.iov_len);
  }
  Bytes expected;
  while (true) {  // until the socket takes no more
    std::ranges::copy(right_head, head.begin());
    const size_t count = channel_.Write(parts).value_or(0);
    std::ranges::fill(head, std::byte{0xEE});
    if (count == 0) break;
    expected.insert(expected.end(), whole.begin(), whole.begin() + static_cast<ptrdiff_t>(count));
    if (count < whole.size()) break;
  }
  EXPECT_TRUE(channel_.wants_output());
  EXPECT_GT(channel_.zero_copy().writes, 1u);
  EXPECT_TRUE(Receive(sockets_.receiver, expected.size()) == expected);
  AwaitCompletions();
}

// Whose pages nobody but this process may touch: page-locked memory of a driver may be like that.
TEST_F(ZeroCopyTest, MemoryThatCannotBePinnedGoesPlainly) {
  constexpr size_t kBytes = 128 << 10;
  constexpr long kMemfdSecret = 447;
  const UniqueFd file(static_cast<int>(syscall(kMemfdSecret, 0)));
  if (!file.valid() || ftruncate(file.get(), kBytes) != 0) {
    GTEST_SKIP() << "this system has no such memory";
  }
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  const Bytes payload = PatternBytes(kBytes, 3);
  std::ranges::copy(payload, static_cast<std::byte*>(memory));
  const iovec part = {memory, kBytes};
  const size_t count = channel_.Write({&part, 1}).value_or(0);
  ASSERT_GT(count, 0u);
  EXPECT_EQ(Receive(sockets_.receiver, count), Bytes(payload.begin(), payload.begin() + count));
  EXPECT_EQ(channel_.zero_copy().writes, 0u);
  EXPECT_EQ(channel_.zero_copy().gave_up, "the system cannot hold on to the pages of KV");
  ASSERT_EQ(munmap(memory, kBytes), 0);
}

TEST_F(ZeroCopyTest, AutoLeavesThisHostAlone) {
  const Sockets sockets = Connect();
  EXPECT_FALSE(ShallZeroCopy(ZeroCopy::kAuto, sockets.sender));
  EXPECT_TRUE(ShallZeroCopy(ZeroCopy::kOn, sockets.sender));
  EXPECT_FALSE(ShallZeroCopy(ZeroCopy::kOff, sockets.sender));
}

}  // namespace
}  // namespace tandem
