// Bounds on what callers may take of a gRPC port, and what is left after they took all of it.

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/commands/child_process.h"
#include "server/commands/client.h"
#include "tests/support/http_peer.h"
#include "tests/support/raw_connections.h"
#include "tests/support/test_cluster.h"
#include "tests/support/tree.h"
#include "tests/support/wrapped_binary.h"
#include "transfer/media/tcp/socket.h"

namespace tandem::connections_test {
namespace {

constexpr int kDescriptors = 128;  // of each process
constexpr int kBurst = 400;
// The others cannot be open at the same time.
constexpr int kRefused = kBurst - kDescriptors;
// What a client of HTTP/2 says first.
const std::string& Opening() {
  static const std::string& bytes =
      *new std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9));
  return bytes;
}
// Connections that say nothing stay open.
constexpr char kPatient[] = "--handshake-seconds=3600";

const std::string& FewDescriptors() {
  static const std::string& binary =
      *new std::string(WrappedBinary(fmt::format("ulimit -n {}", kDescriptors)));
  return binary;
}

uint64_t Closed(const v1::ConnectionUse& use) { return use.refused() + use.evicted(); }

bool CanServe(const v1::GetStatusResponse& status) {
  const v1::WorkerStatus* worker = FindWorker(status, "unified-0");
  return worker != nullptr && worker->load().not_ready().empty() && !worker->load().starting();
}

// A connection may be closed at the moment when the request takes it; then the next one has another.
void ExpectAnAnswer(Client& client) {
  Outcome outcome;
  for (int tries = 0; tries < 5; ++tries) {
    outcome = Ask(client, TextRequest("It was", v1::ROUTE_UNIFIED, 4));
    if (!absl::IsUnavailable(outcome.status)) break;
  }
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
}

TEST(ConnectionsTest, ARouterTakesNewClientsAndWorkersInABurstOfSilentConnections) {
  const uint16_t metrics_port = FreePort();
  TestCluster cluster({.binary = FewDescriptors(),
                       .prefill = 0,
                       .decode = 0,
                       .router_flags = {fmt::format("--metrics-port={}", metrics_port), kPatient}});
  ASSERT_EQ(HttpGet(metrics_port, "/healthz").status, 200);
  RawConnections burst(cluster.address(), kBurst);
  ASSERT_TRUE(burst.AwaitClosed(kRefused));
  // They make room for others, once those that were told to go have gone.
  while (HttpGet(metrics_port, "/healthz").status != 200) std::this_thread::yield();
  Client client(cluster.address());
  ASSERT_TRUE(client.WaitUntilConnected(std::chrono::minutes(1)));
  const auto status = client.GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_GE(Closed(status->connections()), uint64_t{kRefused});
  EXPECT_FALSE(status->connections().full());
  for (const char* metric :
       {"tandem_connections_refused_total", "tandem_connections_evicted_total"}) {
    EXPECT_THAT(HttpGet(metrics_port, "/metrics").body,
                testing::HasSubstr(fmt::format("{}{{server=\"router\"}} ", metric)));
  }
  cluster.Kill("unified-0");
  cluster.Start("unified-0");
  ExpectAnAnswer(client);
}

// There is room for all of them; but what waits for a handshake takes memory, too.
TEST(ConnectionsTest, FewConnectionsMayBeInTheirHandshake) {
  constexpr int kHandshakes = 64;
  constexpr int kSilent = 200;
  TestCluster cluster(
      {.prefill = 0, .decode = 0, .router_flags = {"--max-connections=256", kPatient}});
  RawConnections burst(cluster.address(), kSilent);
  ASSERT_TRUE(burst.AwaitClosed(kSilent - kHandshakes));
  Client client(cluster.address());
  ASSERT_TRUE(client.WaitUntilConnected(std::chrono::minutes(1)));
  ExpectAnAnswer(client);
  const auto status = client.GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_GE(status->connections().evicted(), uint64_t{kSilent - kHandshakes});
  EXPECT_EQ(status->connections().refused(), 0U);
}

TEST(ConnectionsTest, ANewRouterReachesAWorkerInABurstOfSilentConnectionsToIt) {
  TestCluster cluster(
      {.binary = FewDescriptors(), .prefill = 0, .decode = 0, .worker_flags = {kPatient}});
  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  RawConnections burst(FindWorker(*status, "unified-0")->address(), kBurst);
  ASSERT_TRUE(burst.AwaitClosed(kRefused));
  cluster.WaitFor("the count of closed connections", [](const v1::GetStatusResponse& now) {
    const v1::WorkerStatus* worker = FindWorker(now, "unified-0");
    return worker != nullptr && Closed(worker->load().connections()) >= uint64_t{kRefused};
  });
  cluster.Kill("router");
  cluster.Start("router");
  cluster.WaitFor("the worker can be reached", CanServe);
  ExpectAnAnswer(cluster.client());
}

// "Max open files" of a process: the soft limit and the hard one.
std::pair<std::string, std::string> DescriptorLimits(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/limits", pid));
  for (std::string line; std::getline(file, line);) {
    std::string max, open, files, soft, hard;
    std::istringstream(line) >> max >> open >> files >> soft >> hard;
    if (open == "open") return {soft, hard};
  }
  return {"", "none"};
}

TEST(ConnectionsTest, TheSoftLimitOnDescriptorsIsRaisedToTheHardOne) {
  TestCluster cluster({.binary = WrappedBinary("ulimit -Sn 100"), .prefill = 0, .decode = 0});
  for (const char* name : {"router", "unified-0"}) {
    const auto [soft, hard] = DescriptorLimits(cluster.pid(name));
    EXPECT_EQ(soft, hard) << name;
  }
}

TEST(ConnectionsTest, ConnectionsThatAreOlderThanAHandshakeMayTakeMakeNoRoom) {
  constexpr int kMost = 8;
  const uint16_t metrics_port = FreePort();
  TestCluster cluster(
      {.prefill = 0,
       .decode = 0,
       .router_flags = {fmt::format("--max-connections={}", kMost),
                        fmt::format("--metrics-port={}", metrics_port), "--handshake-seconds=1"}});
  RawConnections settled(cluster.address(), kMost);
  settled.Send(Opening());
  cluster.WaitFor("no connection to be young",
                  [](const v1::GetStatusResponse& status) { return status.connections().full(); });
  EXPECT_EQ(HttpGet(metrics_port, "/healthz").status, 503) << "nobody can connect";
  RawConnections late(cluster.address(), 20);
  ASSERT_TRUE(late.AwaitClosed(20));
  // A connection is counted after it was closed.
  cluster.WaitFor("the late ones to be counted", [](const v1::GetStatusResponse& status) {
    return status.connections().refused() >= 20;
  });
  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->connections().limit(), kMost);
  EXPECT_EQ(status->connections().open(), kMost);
}

// The numbers of a server's first frame, SETTINGS: by identifier.
std::map<int, uint32_t> ReadSettings(RawConnections& connection) {
  const std::string bytes = connection.Receive(9 + 6);
  const auto byte = [&bytes](size_t at) { return uint32_t{static_cast<uint8_t>(bytes.at(at))}; };
  const size_t size = byte(0) << 16 | byte(1) << 8 | byte(2);
  std::map<int, uint32_t> settings;
  for (size_t at = 9; at + 6 <= std::min(9 + size, bytes.size()); at += 6) {
    settings[static_cast<int>(byte(at) << 8 | byte(at + 1))] =
        byte(at + 2) << 24 | byte(at + 3) << 16 | byte(at + 4) << 8 | byte(at + 5);
  }
  return settings;
}

TEST(ConnectionsTest, RouterAndWorkersTellTheirLimitsOnStreamsAndMetadata) {
  const std::vector<std::string> flags = {"--max-streams=77", "--max-metadata-bytes=4321"};
  TestCluster cluster({.prefill = 0, .decode = 0, .router_flags = flags, .worker_flags = flags});
  const auto status = cluster.client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  for (const std::string& address :
       {cluster.address(), FindWorker(*status, "unified-0")->address()}) {
    RawConnections connection(address, 1);
    connection.Send(Opening());
    const std::map<int, uint32_t> settings = ReadSettings(connection);
    constexpr int kMaxConcurrentStreams = 3;
    constexpr int kMaxHeaderListSize = 6;
    ASSERT_TRUE(settings.contains(kMaxConcurrentStreams) && settings.contains(kMaxHeaderListSize));
    EXPECT_EQ(settings.at(kMaxConcurrentStreams), 77u);
    EXPECT_EQ(settings.at(kMaxHeaderListSize), 4321u);
  }
}

TEST(ConnectionsTest, IdleAndSilentConnectionsAreClosed) {
  TestCluster cluster({.prefill = 0,
                       .decode = 0,
                       .router_flags = {"--connection-idle-seconds=1", "--handshake-seconds=1",
                                        "--keepalive-seconds=3600"}});
  RawConnections silent(cluster.address(), 3);
  EXPECT_TRUE(silent.AwaitClosed(3));
  RawConnections idle(cluster.address(), 3);
  idle.Send(Opening());
  EXPECT_TRUE(idle.AwaitClosed(3));
  ExpectAnAnswer(cluster.client());
}

// Expects that a router with these flags closes connections that are opened and then silent.
void ExpectSilentOnesAreClosed(const std::vector<std::string>& flags) {
  TestCluster cluster({.prefill = 0, .decode = 0, .router_flags = flags});
  RawConnections opened(cluster.address(), 3);
  opened.Send(Opening());
  EXPECT_TRUE(opened.AwaitClosed(3));
  ExpectAnAnswer(cluster.client());
}

// In each of these tests no other limit would close the connection within the minute that it waits.
TEST(ConnectionsTest, AConnectionIsClosedWhenItIsOldEnough) {
  ExpectSilentOnesAreClosed({"--connection-age-seconds=1", "--connection-age-grace-seconds=1",
                             "--connection-idle-seconds=0", "--keepalive-seconds=3600"});
}

TEST(ConnectionsTest, AConnectionThatAnswersNoPingIsClosed) {
  ExpectSilentOnesAreClosed(
      {"--keepalive-seconds=1", "--keepalive-timeout-seconds=1", "--connection-idle-seconds=0"});
}

// A router that listens on `host`, until this is gone.
class RouterOn {
 public:
  explicit RouterOn(const std::string& host)
      : process_(*ChildProcess::Start(
            {"router", "--host=" + host, "--port=0", "--log-level=off", "--model=" + SampleModel()},
            DaemonBinary())) {
    const std::string address = process_.TakeReadyLine();
    port_ = address.substr(address.rfind(':') + 1);
  }
  ~RouterOn() {
    process_.Signal(SIGKILL);
    waitpid(process_.pid(), nullptr, 0);
  }

  // Asks it by that address of this machine.
  absl::Status AskAt(const std::string& host) const {
    return Client(host + ":" + port_).GetStatus(std::chrono::minutes(1)).status();
  }

 private:
  ChildProcess process_;
  std::string port_;
};

TEST(ConnectionsTest, TheUnspecifiedAddressOfIpv4ServesIpv4Only) {
  const RouterOn router("0.0.0.0");
  EXPECT_TRUE(router.AskAt("127.0.0.1").ok());
  EXPECT_EQ(router.AskAt("[::1]").code(), absl::StatusCode::kUnavailable);
}

TEST(ConnectionsTest, TheUnspecifiedAddressOfIpv6ServesBothVersions) {
  if (!Listen("::1", 0).ok()) GTEST_SKIP() << "this machine has no IPv6";
  const RouterOn router("::");
  EXPECT_TRUE(router.AskAt("127.0.0.1").ok());
  EXPECT_TRUE(router.AskAt("[::1]").ok());
}

}  // namespace
}  // namespace tandem::connections_test
