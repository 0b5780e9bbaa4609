// Connections at every port of a router and of a worker that say too little, with TLS and without: they
// are refused and counted, honest peers are served all the while, and memory and descriptors come back.

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/integration/abuse_fixture.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/http2_bytes.h"
#include "tests/support/sanitized.h"

namespace tandem::abuse {
namespace {

// By how much it may differ while a port has as many connections as its limit allows, however many
// come.
constexpr int64_t kNoiseKib = 16 << 10;
// How many times as long honest peers may take while the machine also runs the attack, and what it
// has sent waits to be accepted before them.
constexpr int kSlowdown = 60;

}  // namespace

void AbuseTest::FloodWithHalfOpen(const AbusedPort& port, int connections) {
  constexpr int kSources = 4;
  const auto undisturbed = fleet_->HonestTime();
  const double refused = fleet_->Refused(port);
  const std::string beginning = Beginning(port);
  std::vector<HostilePeer> peers;
  std::vector<std::chrono::nanoseconds> times;
  std::map<std::string, int64_t> with_half;
  for (int i = 1; i <= connections; ++i) {
    peers.emplace_back(port.port, 2 + i % kSources);
    // A server answers a whole TLS message, and waits for the rest of a part.
    if (i % 3 == 0) peers.back().Send(beginning.substr(0, beginning.size() / 2));
    if (i % 3 == 1) peers.back().Send(beginning);
    if (i % (connections / 5) == 0) times.push_back(fleet_->ServeHonestPeers());
    if (i == connections / 2) with_half = MemoryKib();  // already more than the limit
  }
  for (const auto& [process, memory_kib] : MemoryKib()) {
    const int64_t growth = memory_kib - with_half[process];
    RecordProperty(fmt::format("growth of {} by the second half at {} in KiB", process, port.name),
                   std::to_string(growth));
    if (kIsSanitized) continue;  // freed memory stays with the sanitizer
    EXPECT_LE(growth, kNoiseKib) << process;
  }
  std::ranges::nth_element(times, times.begin() + 2);
  EXPECT_LE(times[2], kSlowdown * undisturbed);
  EXPECT_GT(fleet_->Refused(port), refused) << "nobody was counted";
}

}  // namespace tandem::abuse

namespace tandem::abuse_test {
namespace {

using abuse::AbuseTest;
using abuse::HalfOpenConnections;
using abuse::Security;

TEST_P(AbuseTest, HalfOpenConnectionsKeepNobodyOut) {
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  const int connections = HalfOpenConnections();
  ASSERT_GE(descriptors.rlim_cur, static_cast<rlim_t>(connections) + 200)
      << "raise the limit on open files (ulimit -n)";
  for (const AbusedPort& port : fleet_->ports()) {
    SCOPED_TRACE(port.name);
    FloodWithHalfOpen(port, connections);
  }
}

// Each sends a byte from time to time, so that a limit on silence would never end it.
TEST_P(AbuseTest, PeersThatTrickleBytesAreDropped) {
  constexpr std::chrono::milliseconds kPause(200);
  constexpr int kMostBytes = 300;  // a minute
  struct Trickle {
    const AbusedPort* port;
    HostilePeer peer;
    std::string bytes;
    double refused_before = 0;
  };
  std::vector<Trickle> peers;
  for (const AbusedPort& port : fleet_->ports()) {
    std::string bytes = Beginning(port);
    bytes.resize(kMostBytes, 'x');
    peers.push_back({&port, HostilePeer(port.port), bytes, fleet_->Refused(port)});
  }
  for (size_t i = 0; i < kMostBytes && !peers.empty(); ++i) {
    std::erase_if(peers, [&](Trickle& one) {
      if (one.peer.HasEnded() || !one.peer.Send(one.bytes.substr(i, 1))) {
        if (one.port->protocol != PortProtocol::kGrpc) {
          EXPECT_GT(fleet_->Refused(*one.port), one.refused_before) << one.port->name;
        }
        return true;
      }
      return false;
    });
    std::this_thread::sleep_for(kPause);  // the attack's pace
  }
  for (const Trickle& one : peers) ADD_FAILURE() << one.port->name << " waits for ever";
}

TEST_P(AbuseTest, PeersThatHangUpEarlyLeaveNothing) {
  constexpr int kRounds = 40;
  for (const AbusedPort& port : fleet_->ports()) {
    for (int i = 0; i < kRounds; ++i) {
      HostilePeer silent(port.port);
      HostilePeer half(port.port);
      half.Send(Beginning(port));
      HostilePeer whole = ConnectTo(port);
      whole.Send(port.protocol == PortProtocol::kGrpc
                     ? http2::Opening()
                     : "POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{");
      for (HostilePeer* const peer : {&silent, &half, &whole}) peer->Reset();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ports, AbuseTest, testing::Values(Security::kPlain, Security::kTls),
                         [](const auto& info) {
                           return info.param == Security::kTls ? "WithTls" : "WithoutTls";
                         });

}  // namespace
}  // namespace tandem::abuse_test
