// An NCCL connection whose other process is killed, or stops, at each of its states.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/channel_pair.h"
#include "tests/support/nccl_fixture.h"
#include "tests/support/payload_memory.h"
#include "transfer/media/tcp/tcp_medium.h"

namespace tandem::nccl_peer_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

enum class Stage : char { kConnected = 'c', kInit = 'i', kReady = 'r', kSending = 's' };

struct Pipe {
  Pipe() {
    int ends[2];
    TANDEM_CHECK(pipe(ends) == 0, "a pipe");
    read_end = UniqueFd(ends[0]);
    write_end = UniqueFd(ends[1]);
  }
  UniqueFd read_end;
  UniqueFd write_end;
};

// The rest of the child's life: goes as far as `stage`, says so and hangs.
[[noreturn]] void LiveUntil(Stage stage, const UniqueFd& commands, const UniqueFd& news) {
  std::array<char, 64> address{};
  if (read(commands.get(), address.data(), address.size() - 1) <= 0) _exit(1);
  const auto reached = [&] {
    if (write(news.get(), &stage, 1) != 1) _exit(2);
    while (true) pause();
  };
  const auto tcp = *OpenTcpMedium({});
  const auto nccl = OpenSmallNccl();
  TheFakeNccl().init_hangs = stage == Stage::kInit;
  Medium& medium = stage == Stage::kConnected ? static_cast<Medium&>(*tcp) : *nccl;
  const auto channel = *medium.Connect(address.data());
  // With an init that hangs, until there is a communicator.
  while (!channel->Establish().value_or(true)) {
    if (TheFakeNccl().communicators > 0 && stage == Stage::kInit) reached();
    AwaitEvent(*channel);
  }
  if (stage != Stage::kSending) reached();
  PayloadMemory memory(&EmulatedGpu());
  const std::span<std::byte> at = memory.New(250'000);
  memory.Write(at, std::vector<std::byte>(at.size()));
  OfferedPayload payload = {.bytes = at};
  const auto announced = channel->side_channel()->Offer({&payload, 1});
  if (announced.ok()) reached();
  _exit(3);
}

class NcclPeerTest : public ::testing::Test {
 protected:
  // Before anything that has a thread.
  void StartPeer(Stage stage) {
    child_ = fork();
    ASSERT_GE(child_, 0);
    if (child_ == 0) LiveUntil(stage, commands_.read_end, news_.write_end);
  }
  // The connection that the peer makes, once the peer has come as far as it goes.
  std::unique_ptr<ByteChannel> Accept(Medium& medium, bool establish) {
    const std::string address = medium.address();
    EXPECT_GT(write(commands_.write_end.get(), address.data(), address.size()), 0);
    std::unique_ptr<ByteChannel> accepted = AwaitConnection(medium);
    if (accepted == nullptr) return nullptr;
    EXPECT_EQ(fcntl(news_.read_end.get(), F_SETFL, O_NONBLOCK), 0);
    char news = 0;
    bool told = false;
    bool established = false;
    while (!told || (establish && !established)) {
      told = told || read(news_.read_end.get(), &news, 1) == 1;
      const auto now = accepted->Establish();
      EXPECT_TRUE(now.ok()) << now.status();
      if (!now.ok()) return nullptr;
      established = *now;
    }
    return accepted;
  }
  void Kill() {
    ASSERT_EQ(kill(child_, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child_, &status, 0), child_);
    child_ = -1;
  }
  absl::Status AwaitEndOfInit(ByteChannel& channel) {
    while (true) {
      const auto established = channel.Establish();
      if (!established.ok()) return established.status();
      EXPECT_FALSE(*established);
      if (!AwaitEvent(channel)) return absl::OkStatus();
    }
  }
  absl::Status AwaitFailure(ByteChannel& channel) {
    std::byte byte;
    const iovec part = {&byte, 1};
    while (true) {
      if (!channel.side_channel()->arriving()) {
        const absl::StatusOr<size_t> count = channel.Read({&part, 1});
        if (!count.ok()) return count.status();
      }
      if (!AwaitEvent(channel)) return absl::OkStatus();
    }
  }
  ~NcclPeerTest() override {
    if (child_ > 0) Kill();
  }

  Pipe commands_;
  Pipe news_;
  pid_t child_ = -1;
};

TEST_F(NcclPeerTest, DiesBeforeItSaysAnything) {
  const int ids = TheFakeNccl().ids;
  ASSERT_NO_FATAL_FAILURE(StartPeer(Stage::kConnected));
  const auto medium = OpenSmallNccl();
  const auto channel = Accept(*medium, false);
  ASSERT_TRUE(channel);
  Kill();
  EXPECT_EQ(AwaitEndOfInit(*channel).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(TheFakeNccl().ids, ids);
}

TEST_F(NcclPeerTest, DiesWhileTheCommunicatorIsMade) {
  ASSERT_NO_FATAL_FAILURE(StartPeer(Stage::kInit));
  const auto medium = OpenSmallNccl();
  auto channel = Accept(*medium, false);
  ASSERT_TRUE(channel);
  EXPECT_EQ(TheFakeNccl().communicators, 1);
  Kill();
  EXPECT_EQ(AwaitEndOfInit(*channel).code(), absl::StatusCode::kUnavailable);
  channel.reset();
  while (TheFakeNccl().communicators > 0) std::this_thread::yield();
}

TEST_F(NcclPeerTest, DiesBetweenOperations) {
  ASSERT_NO_FATAL_FAILURE(StartPeer(Stage::kReady));
  const auto medium = OpenSmallNccl();
  const auto channel = Accept(*medium, true);
  ASSERT_TRUE(channel);
  Kill();
  EXPECT_EQ(AwaitFailure(*channel).code(), absl::StatusCode::kUnavailable);
}

TEST_F(NcclPeerTest, DiesInTheMiddleOfAnOperation) {
  ASSERT_NO_FATAL_FAILURE(StartPeer(Stage::kSending));
  const auto medium = OpenSmallNccl();
  auto channel = Accept(*medium, true);
  ASSERT_TRUE(channel);
  ASSERT_EQ(channel->side_channel()->Expect(250'112), absl::OkStatus());
  ASSERT_TRUE(channel->side_channel()->arriving());
  Kill();
  const absl::Status status = AwaitFailure(*channel);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("in the middle of an operation"));
  // The kernel that spins ends with the abort, and the slot comes back.
  channel.reset();
  while (TheFakeNccl().communicators > 0) std::this_thread::yield();
}

// Between GPUs nothing tells: the deadline does.
TEST_F(NcclPeerTest, StopsInTheMiddleOfAnOperation) {
  ASSERT_NO_FATAL_FAILURE(StartPeer(Stage::kSending));
  NcclOptions options = SmallNccl();
  options.init_timeout = milliseconds(1500);
  const auto medium = OpenSmallNccl(options);
  const auto channel = Accept(*medium, true);
  ASSERT_TRUE(channel);
  ASSERT_EQ(kill(child_, SIGSTOP), 0);
  ASSERT_EQ(channel->side_channel()->Expect(250'112), absl::OkStatus());
  const absl::Status status = AwaitFailure(*channel);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("250112 bytes is not done"));
}

}  // namespace
}  // namespace tandem::nccl_peer_test
