// Peers that are refused before any frame, at their greeting or since they say nothing: the
// transport counts them.
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/hash.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/support/ipc_fixture.h"
#include "tests/support/raw_peer.h"
#include "tests/support/tcp_transport.h"
#include "tests/support/test_certificates.h"
#include "tests/support/transport_probe.h"
#include "transfer/framed/framed_transport.h"
#include "transfer/media/host_medium.h"
#include "transfer/media/shm/shm_medium.h"

namespace tandem::unauthenticated_peers_test {
namespace {

constexpr uint64_t kEpoch = 7;
constexpr std::chrono::milliseconds kForEver{1'000'000};

class UnauthenticatedPeersTest : public ::testing::Test {
 protected:
  std::unique_ptr<Transport> TransportOf(std::unique_ptr<Medium> medium,
                                         int32_t max_connections = 256) {
    auto transport = NewFramedTransport({.max_connections = max_connections, .device = &Cpu()},
                                        std::move(medium), &receiver_probe_);
    EXPECT_TRUE(transport.ok()) << transport.status();
    return *std::move(transport);
  }

  // Counted, and nothing else is.
  static void ExpectUnauthenticated(const Transport& transport, uint64_t count) {
    const absl::Time end = absl::Now() + kPatience;
    while (transport.stats().refused.unauthenticated < count && absl::Now() < end)
      std::this_thread::yield();
    const RefusedFrames refused = transport.stats().refused;
    EXPECT_EQ(refused.unauthenticated, count);
    EXPECT_EQ(refused.closed, count);
    EXPECT_EQ(refused.malformed + refused.corrupted + refused.stale, 0u);
  }

  ReceiverProbe receiver_probe_;
};

// Reads until the other side closes; what came.
std::string ReadAll(const UniqueFd& socket) {
  std::string all;
  std::array<char, 4096> bytes;
  while (true) {
    pollfd watched = {.fd = socket.get(), .events = POLLIN};
    if (poll(&watched, 1, 60'000) <= 0) return "nothing came, not even the end";
    const ssize_t count = recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (count <= 0) return all;
    all.append(bytes.data(), static_cast<size_t>(count));
  }
}

TEST_F(UnauthenticatedPeersTest, WhoGreetsOverIpcWithNonsenseOrInAnotherVersion) {
  const auto transport = TransportOf(NewReceiver());
  const auto greet = [&transport](std::span<const std::byte> bytes) {
    const UniqueFd socket = *ConnectUnix(ParseHostAddress(transport->address())->name);
    EXPECT_EQ(SendWithDescriptors(socket.get(), bytes, {}), absl::OkStatus());
    return ReadAll(socket).size();
  };
  std::array<std::byte, kMemoryGreetingBytes> nonsense;
  nonsense.fill(std::byte{0x5A});
  EXPECT_EQ(greet(nonsense), kMemoryAnswerBytes);
  ExpectUnauthenticated(*transport, 1);
  auto later = EncodeMemoryGreeting({});
  later[4] = std::byte{kMemoryGreetingVersion + 1};
  const uint64_t hash = Hash64(std::span(later).first(kMemoryGreetingBytes - sizeof(uint64_t)));
  std::memcpy(&later[kMemoryGreetingBytes - sizeof(hash)], &hash, sizeof(hash));
  EXPECT_EQ(greet(later), kMemoryAnswerBytes);
  ExpectUnauthenticated(*transport, 2);
  EXPECT_TRUE(receiver_probe_.calls().empty());
}

// The life of a process of another user; whether it was told that it is refused.
int ConnectAsNobody(const std::string& address, const std::string& told) {
  if (setresuid(65534, 65534, 65534) != 0) return 1;
  const auto socket = ConnectUnix(ParseHostAddress(address)->name);
  if (!socket.ok()) return 2;
  return ReadAll(*socket) == told ? 0 : 3;
}

template <size_t kSize>
std::string Text(const std::array<std::byte, kSize>& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

TEST_F(UnauthenticatedPeersTest, AnotherUserOfTheHost) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto refused = absl::StatusCode::kPermissionDenied;
  const std::string told = Text(EncodeMemoryAnswer(refused));
  std::unique_ptr<Medium> media[] = {NewReceiver(), *OpenShmMedium({.device = &Cpu()})};
  for (std::unique_ptr<Medium>& medium : media) {
    const std::string address = medium->address();
    const pid_t child = fork();  // before there is another thread
    ASSERT_GE(child, 0);
    if (child == 0) _exit(ConnectAsNobody(address, told));
    const auto transport = TransportOf(std::move(medium));
    ExpectUnauthenticated(*transport, 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

// One in four connections may be one that has said nothing: the oldest of them gives way.
TEST_F(UnauthenticatedPeersTest, WhoSaysNothingGivesWayToOthers) {
  const auto receiver =
      *OpenTcpTransport({}, &receiver_probe_, {.max_connections = 8, .connect_timeout = kForEver});
  RawPeer worker = RawPeer::ConnectTo(receiver->address());
  worker.Greet();
  std::vector<RawPeer> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(RawPeer::ConnectTo(receiver->address()));
  ExpectUnauthenticated(*receiver, 298);
  EXPECT_TRUE(silent.front().IsClosed());
  // Whoever comes now finds room, and whoever was there before them stays.
  const auto sender = *OpenTcpTransport({}, nullptr);
  EndProbe ends;
  StreamBook streams;
  ASSERT_EQ(
      streams.Open(*sender, receiver->address(), 1, kEpoch, Duration::zero(), ends.Callback()),
      absl::OkStatus());
  ASSERT_EQ(streams.Finish(*sender, {1, kEpoch}), absl::OkStatus());
  EXPECT_EQ(ends.Wait(1), absl::OkStatus());
  worker.Send(HeaderBytes({.type = FrameType::kCommit, .stream = 2, .epoch = kEpoch}));
  EXPECT_EQ(worker.ReceiveHeader().type, FrameType::kAck);
  ExpectUnauthenticated(*receiver, 299);
}

TEST_F(UnauthenticatedPeersTest, WhoSaysNothingToAUnixSocketGivesWayToOthers) {
  std::unique_ptr<Medium> media[] = {NewReceiver(), *OpenShmMedium({.device = &Cpu()})};
  for (std::unique_ptr<Medium>& medium : media) {
    const std::string name = ParseHostAddress(medium->address())->name;
    const auto transport = TransportOf(std::move(medium), 8);
    std::vector<UniqueFd> silent;
    for (int i = 0; i < 5; ++i) silent.push_back(*ConnectUnix(name));
    ExpectUnauthenticated(*transport, 3);
  }
}

TEST_F(UnauthenticatedPeersTest, WhoSaysNothingIsCountedOnceItsTimeIsOver) {
  const auto receiver =
      *OpenTcpTransport({}, &receiver_probe_, {.connect_timeout = std::chrono::milliseconds(20)});
  RawPeer silent = RawPeer::ConnectTo(receiver->address());
  EXPECT_TRUE(silent.IsClosed());
  ExpectUnauthenticated(*receiver, 1);
}

TEST_F(UnauthenticatedPeersTest, WhoSendsItsHelloByteByByteHasNoMoreTime) {
  const auto receiver =
      *OpenTcpTransport({}, &receiver_probe_, {.connect_timeout = std::chrono::milliseconds(100)});
  RawPeer slow = RawPeer::ConnectTo(receiver->address());
  const auto hello = HeaderBytes({.type = FrameType::kHello, .stream = 1, .block = 1});
  // Each byte comes well within the time, all of them take five times as long.
  const absl::Time begin = absl::Now();
  for (size_t i = 0; i < hello.size() && receiver->stats().refused.closed == 0; ++i) {
    while (absl::Now() < begin + absl::Milliseconds(8 * static_cast<int64_t>(i))) {
      std::this_thread::yield();
    }
    slow.Send(std::span(hello).subspan(i, 1));
  }
  EXPECT_TRUE(slow.IsClosed());
  ExpectUnauthenticated(*receiver, 1);
}

TEST_F(UnauthenticatedPeersTest, WhoComesWhenAllPlacesAreTakenIsCounted) {
  const auto receiver = *OpenTcpTransport({}, &receiver_probe_, {.max_connections = 1});
  RawPeer worker = RawPeer::ConnectTo(receiver->address());
  worker.Greet();
  RawPeer late = RawPeer::ConnectTo(receiver->address());
  EXPECT_TRUE(late.IsClosed());
  EXPECT_EQ(receiver->stats().refused.closed, 1u);
  EXPECT_EQ(receiver->stats().refused.unauthenticated, 0u)
      << "one of ours, as far as anybody knows";
}

TEST_F(UnauthenticatedPeersTest, WhoHasNoCertificateOfOurs) {
  TestAuthority ours(::testing::TempDir(), fmt::format("strangers-{}", getpid()));
  TestAuthority foreign(::testing::TempDir(), fmt::format("strangers-foreign-{}", getpid()));
  TlsFiles theirs = foreign.Issue("stranger");
  theirs.ca = ours.ca_file();
  const auto receiver = *OpenTcpTransport({.tls = ours.Issue("receiver")}, &receiver_probe_);
  const auto sender = *OpenTcpTransport({.tls = theirs}, nullptr);
  EndProbe ends;
  StreamBook streams;
  ASSERT_EQ(
      streams.Open(*sender, receiver->address(), 1, kEpoch, Duration::zero(), ends.Callback()),
      absl::OkStatus());
  EXPECT_FALSE(ends.Wait(1).ok());
  ExpectUnauthenticated(*receiver, 1);
}

}  // namespace
}  // namespace tandem::unauthenticated_peers_test
