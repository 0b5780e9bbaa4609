// Peers that greet wrongly: memory which is not what they say, files too many, another user, no
// greeting at all. Each is refused, told so, and leaves nothing behind.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/ipc_fixture.h"
#include "transfer/media/host_medium.h"

namespace tandem::memory_greeting_refusal_test {
namespace {

using ::testing::HasSubstr;

TEST(MemoryGreetingRefusal, MemoryThatIsNotWhatThePeerSaysIsNotOpened) {
  FalseConnector peer;
  EXPECT_EQ(peer.Greet(HostFiles({4096, 8192}), Files({4096, 8192})), absl::OkStatus());
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kOk);
  const auto refused = [&peer](uint64_t said, std::vector<UniqueFd> files) {
    const absl::Status status = peer.Greet(HostFiles({said}), files);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(peer.Answer(), absl::StatusCode::kInvalidArgument);
    return Message(status);
  };
  EXPECT_THAT(refused(1 << 20, Files({4096})), HasSubstr("4096"));
  EXPECT_THAT(refused(4096, Files({1 << 20})), HasSubstr("1048576"));
  EXPECT_THAT(refused(4096, Files({4096}, F_SEAL_GROW)), HasSubstr("may shrink"));
  std::vector<UniqueFd> no_memory;
  no_memory.emplace_back(open("/dev/null", O_RDWR | O_CLOEXEC));
  refused(4096, std::move(no_memory));
}

TEST(MemoryGreetingRefusal, EachSegmentComesWithItsFile) {
  FalseConnector peer;
  EXPECT_EQ(peer.Greet(HostFiles({4096, 4096}), Files({4096})).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Greet(HostFiles({4096}), Files({4096, 4096})).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Greet(HostFiles({}), {}), absl::OkStatus());
}

TEST(MemoryGreetingRefusal, AGreetingThatIsNoneIsRefused) {
  FalseConnector peer;
  std::array<std::byte, kMemoryGreetingBytes> nonsense;
  nonsense.fill(std::byte{0x5A});
  EXPECT_EQ(peer.Greet(nonsense, {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kDataLoss);
}

// A message per byte, each with as many files as it may have.
TEST(MemoryGreetingRefusal, APeerCannotFillTheTableOfFiles) {
  FalseConnector peer;
  const std::vector<UniqueFd> files = Files({64, 64, 64, 64, 64, 64, 64, 64});
  std::vector<int> numbers;
  for (const UniqueFd& file : files) numbers.push_back(file.get());
  const size_t before = OpenDescriptors();
  const std::array<std::byte, 1> byte{};
  absl::Status status = peer.Greet(byte, numbers);
  size_t rounds = 1;
  while (status.ok() && rounds < 100) {
    ASSERT_EQ(SendWithDescriptors(peer.socket().get(), byte, numbers), absl::OkStatus());
    status = peer.channel().Establish().status();
    ++rounds;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(rounds, 2u);
  EXPECT_LE(OpenDescriptors(), before + 2 + 2 * kMaxMemorySegments);
}

// More at once than Received has room for.
TEST(MemoryGreetingRefusal, NineFilesAtOnceAreRefused) {
  FalseConnector peer;
  ASSERT_EQ(peer.Greet(std::span<const std::byte>(EncodeMemoryGreeting({})).first(1), {}),
            absl::OkStatus());
  const UniqueFd file = MemoryFile(64);
  alignas(cmsghdr) std::byte space[CMSG_SPACE(9 * sizeof(int))] = {};
  std::byte byte{};
  iovec part = {&byte, 1};
  msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  message.msg_control = space;
  message.msg_controllen = sizeof(space);
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(9 * sizeof(int));
  for (size_t i = 0; i < 9; ++i) {
    const int number = file.get();
    std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &number, sizeof(int));
  }
  ASSERT_EQ(sendmsg(peer.socket().get(), &message, 0), 1);
  const size_t before = OpenDescriptors();
  const absl::Status status = peer.channel().Establish().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("more than 8"));
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(MemoryGreetingRefusal, AGreetingMayComeByteByByte) {
  FalseConnector peer;
  const auto greeting = EncodeMemoryGreeting(HostFiles({4096}));
  const UniqueFd file = MemoryFile(4096);
  ASSERT_EQ(peer.Greet(std::span(greeting).first(1), {file.get()}), absl::OkStatus());
  for (size_t at = 1; at < greeting.size(); ++at) {
    EXPECT_EQ(peer.channel().side_channel(), nullptr);
    ASSERT_EQ(send(peer.socket().get(), &greeting[at], 1, 0), 1);
    ASSERT_EQ(peer.channel().Establish().value(), at + 1 == greeting.size());
  }
  EXPECT_EQ(peer.Answer(), absl::StatusCode::kOk);
  EXPECT_TRUE(peer.channel().side_channel()->Find(4095, 1).ok());
}

// An answer of something else that listens at a name.
TEST(MemoryGreetingRefusal, AnAnswerThatIsNoneIsRefused) {
  const Sender sender;
  const HostAddress address = *NewHostAddress();
  const UniqueFd listener = *ListenUnix(address.name);
  const auto connected = *sender.medium->Connect(address.Text());
  const UniqueFd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::array<std::byte, kMemoryAnswerBytes> nonsense{};
  ASSERT_EQ(send(socket.get(), nonsense.data(), nonsense.size(), 0), ssize_t{kMemoryAnswerBytes});
  EXPECT_EQ(connected->Establish().status().code(), absl::StatusCode::kFailedPrecondition);
}

// The life of a process of another user; its exit status says what went wrong.
int ConnectAsNobody(const std::string& address) {
  if (setresuid(65534, 65534, 65534) != 0) return 1;
  // The connecting side looks who listens, too: nobody shows its memory to another user's process.
  const Sender sender;
  if (sender.medium->Connect(address).status().code() != absl::StatusCode::kFailedPrecondition) {
    return 2;
  }
  const auto socket = ConnectUnix(ParseHostAddress(address)->name);
  std::array<std::byte, kMemoryAnswerBytes> answer;
  pollfd watched = {.fd = socket->get(), .events = POLLIN};
  if (poll(&watched, 1, 60'000) <= 0) return 3;
  if (recv(socket->get(), answer.data(), answer.size(), 0) != ssize_t{kMemoryAnswerBytes}) return 4;
  return *ParseMemoryAnswer(answer) == absl::StatusCode::kPermissionDenied ? 0 : 5;
}

TEST(MemoryGreetingRefusal, AnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto receiver = NewReceiver();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(ConnectAsNobody(receiver->address()));
  for (int refused = 0; refused < 2; ++refused) {
    pollfd listener = {.fd = receiver->listener_fd(), .events = POLLIN};
    ASSERT_GT(poll(&listener, 1, 60'000), 0);
    EXPECT_EQ(receiver->Accept().status().code(), absl::StatusCode::kPermissionDenied);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(MemoryGreetingRefusal, RefusedConnectionsLeaveNothingBehind) {
  FalseConnector peer;
  peer.Greet(HostFiles({1 << 20, 4096}), Files({1 << 20, 64})).IgnoreError();
  const size_t mappings = Mappings();
  const size_t descriptors = OpenDescriptors();
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(peer.Greet(HostFiles({1 << 20, 4096}), Files({1 << 20, 64})).ok());
    ASSERT_LE(Mappings(), mappings) << i;
    ASSERT_LE(OpenDescriptors(), descriptors) << i;
  }
}

}  // namespace
}  // namespace tandem::memory_greeting_refusal_test
