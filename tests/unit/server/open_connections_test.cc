#include "server/services/open_connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

#include "base/unique_fd.h"
#include "gtest/gtest.h"
#include "transfer/media/tcp/socket.h"

namespace tandem::open_connections_test {
namespace {

TEST(OpenConnectionsTest, ConnectionsThatSomebodyElseClosedAreNotCounted) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  OpenConnections connections;
  for (const int end : ends) connections.Add(end, TimePoint());
  EXPECT_EQ(connections.Count(), 2);
  close(ends[0]);
  EXPECT_EQ(connections.upper_bound(), 2);
  EXPECT_EQ(connections.Count(), 1);
  EXPECT_EQ(connections.upper_bound(), 1);
  close(ends[1]);
  EXPECT_EQ(connections.Count(), 0);
}

TEST(OpenConnectionsTest, ADescriptorThatNowStandsForSomethingElseIsNotCounted) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  OpenConnections connections;
  connections.Add(ends[0], TimePoint());
  const int file = open("/dev/null", O_RDONLY);
  ASSERT_EQ(dup2(file, ends[0]), ends[0]);
  EXPECT_EQ(connections.Count(), 0);
  connections.Add(ends[1], TimePoint());
  ASSERT_EQ(dup2(socket(AF_UNIX, SOCK_STREAM, 0), ends[1]), ends[1]) << "another socket";
  EXPECT_EQ(connections.Count(), 0);
  connections.Add(ends[1], TimePoint());
  EXPECT_EQ(connections.Count(), 1);
}

// One connection over TCP, of which the test has both ends.
struct TcpPair {
  explicit TcpPair(const UniqueFd& listener) : peer(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(LocalPort(listener));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    pollfd waiting = {.fd = listener.get(), .events = POLLIN};
    EXPECT_EQ(poll(&waiting, 1, 60'000), 1);
    accepted = accept(listener.get(), nullptr, nullptr);
  }
  ~TcpPair() { close(accepted); }
  // Sends so many bytes and waits until they are there.
  void Say(size_t bytes) const {
    const std::string text(bytes, 'x');
    EXPECT_EQ(send(peer.get(), text.data(), bytes, 0), static_cast<ssize_t>(bytes));
    std::string received(bytes, ' ');
    EXPECT_EQ(recv(accepted, received.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
  }
  // Waits until something has come that was not read.
  void AwaitUnread() const {
    pollfd waiting = {.fd = accepted, .events = POLLIN};
    EXPECT_EQ(poll(&waiting, 1, 60'000), 1);
  }
  // Waits until nothing has been sent for so long.
  void AwaitQuiet(std::chrono::milliseconds time) const {
    tcp_info info{};
    do {
      socklen_t size = sizeof(info);
      ASSERT_EQ(getsockopt(accepted, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    } while (info.tcpi_last_data_recv < time.count());
  }
  bool is_open() const {
    char byte = 0;
    return recv(peer.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
  }

  UniqueFd peer;
  int accepted = -1;
};

TEST(OpenConnectionsTest, TheYoungOnesThatSaidLeastMakeRoom) {
  const UniqueFd listener = *Listen("127.0.0.1", 0);
  const TcpPair old(listener), talker(listener), silent(listener), silent_later(listener);
  const TcpPair* const young[] = {&talker, &silent, &silent_later};
  talker.Say(100);
  const TimePoint begin{std::chrono::seconds(1000)};
  OpenConnections connections;
  connections.Add(old.accepted, begin);
  for (int i = 0; i < 3; ++i) {
    connections.Add(young[i]->accepted, begin + std::chrono::seconds(i + 1));
  }
  EXPECT_EQ(connections.EvictQuietest(begin, 1), 1);
  EXPECT_FALSE(silent.is_open());
  EXPECT_TRUE(silent_later.is_open());
  EXPECT_EQ(connections.upper_bound(), 3) << "it does not count any more";
  EXPECT_EQ(connections.EvictQuietest(begin, 9), 2);
  EXPECT_FALSE(silent_later.is_open() || talker.is_open());
  EXPECT_TRUE(old.is_open());
  EXPECT_FALSE(connections.HasAnyAcceptedAfter(begin));
  EXPECT_EQ(connections.EvictQuietest(begin, 9), 0);
}

constexpr std::chrono::seconds kLongPatience(60);

// Handshakes in which the peer's turn has come, and such as wait for the server.
TEST(OpenConnectionsTest, UnfinishedConnectionsWhosePeersKeepTheServerWaitingEnd) {
  const UniqueFd listener = *Listen("127.0.0.1", 0);
  const TcpPair old(listener), silent(listener), answered(listener), waiting(listener),
      done(listener);
  for (const TcpPair* const pair : {&answered, &done}) pair->Say(100);
  EXPECT_EQ(send(answered.accepted, "x", 1, 0), 1);
  done.Say(100);
  EXPECT_EQ(send(waiting.peer.get(), "x", 1, 0), 1);
  waiting.AwaitUnread();
  const TimePoint begin{std::chrono::seconds(1000)};
  OpenConnections connections;
  connections.Add(old.accepted, begin);
  for (const TcpPair* const pair : {&silent, &answered, &waiting, &done}) {
    connections.Add(pair->accepted, begin + std::chrono::seconds(1));
  }
  EXPECT_EQ(connections.unfinished_upper_bound(), 5);
  EXPECT_EQ(connections.EvictUnfinished(begin, kLongPatience, 2), 0) << "none was quiet for long";
  EXPECT_EQ(connections.unfinished_upper_bound(), 3);
  EXPECT_EQ(connections.EvictUnfinished(begin, {}, 1), 0) << "one waits for the server";
  EXPECT_EQ(connections.EvictUnfinished(begin, {}, 2), 2);
  EXPECT_EQ(connections.unfinished_upper_bound(), 1);
  EXPECT_EQ(connections.upper_bound(), 3) << "what was ended does not count any more";
  char answer = 0;
  EXPECT_EQ(recv(answered.peer.get(), &answer, 1, 0), 1);
  EXPECT_FALSE(silent.is_open() || answered.is_open());
  EXPECT_TRUE(old.is_open() && waiting.is_open() && done.is_open());
  EXPECT_EQ(recv(waiting.accepted, &answer, 1, 0), 1);
  EXPECT_EQ(connections.EvictUnfinished(begin, {}, 1), 1);
  EXPECT_FALSE(waiting.is_open()) << "it has sent a part alone";
}

TEST(OpenConnectionsTest, TheUnfinishedConnectionThatWasQuietForTheLongestTimeEndsFirst) {
  const UniqueFd listener = *Listen("127.0.0.1", 0);
  const TcpPair first(listener), second(listener), third(listener);
  const TimePoint begin{std::chrono::seconds(1000)};
  OpenConnections connections;
  for (const TcpPair* const pair : {&first, &second, &third}) {
    connections.Add(pair->accepted, begin + std::chrono::seconds(1));
  }
  EXPECT_EQ(connections.EvictUnfinished(begin, {}, 4), 0);
  second.AwaitQuiet(std::chrono::milliseconds(50));
  first.Say(1);
  EXPECT_EQ(connections.EvictUnfinished(begin, {}, 3), 1);
  EXPECT_FALSE(second.is_open());
  EXPECT_EQ(connections.EvictUnfinished(begin, {}, 2), 1);
  EXPECT_FALSE(third.is_open());
  EXPECT_TRUE(first.is_open());
  EXPECT_EQ(connections.EvictUnfinished(begin, {}, 2), 0);
}

// gRPC has closed the connection, and the system has given its number to another one.
TEST(OpenConnectionsTest, AnotherSocketUnderItsNumberIsLeftAlone) {
  const UniqueFd listener = *Listen("127.0.0.1", 0);
  const TcpPair gone(listener), other(listener);
  OpenConnections connections;
  connections.Add(gone.accepted, TimePoint() + std::chrono::seconds(1));
  ASSERT_EQ(dup2(other.accepted, gone.accepted), gone.accepted);
  EXPECT_EQ(connections.EvictQuietest(TimePoint(), 1), 0);
  EXPECT_TRUE(other.is_open());
}

}  // namespace
}  // namespace tandem::open_connections_test
