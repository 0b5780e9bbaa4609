// Hostile input at every port of a router and of a worker, with TLS and without: it is refused and
// counted, honest peers are served all the while, and memory and descriptors come back.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/abused_fleet.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/http2_bytes.h"
#include "tests/support/process_use.h"
#include "tests/support/raw_peer.h"
#include "tests/support/sanitized.h"

namespace tandem::abuse_test {
namespace {

using Security = AbusedFleet::Security;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// By how much the resident memory of a process may grow while it is attacked: for each connection
// that its limit allows, and for all else, of which gRPC may have 64 MiB and takes up to twice
// that.
constexpr int64_t kConnectionKib = 32;
constexpr int64_t kMemorySlackKib = 160 << 10;
// By how much it may differ while a port has as many connections as its limit allows, however many
// come.
constexpr int64_t kNoiseKib = 16 << 10;
// How many times as long honest peers may take while the machine also runs the attack, and what it
// has sent waits to be accepted before them.
constexpr int kSlowdown = 60;
constexpr int kDefaultConnections = 4096;  // --max-connections
constexpr int kGrpcMemoryMib = 64;
constexpr char kGenerate[] = "/tandem.v1.Inference/Generate";
constexpr char kGenerateOnWorker[] = "/tandem.v1.Worker/Generate";

// Connections that say too little; make test-long opens as many as a large attack would.
int HalfOpenConnections() {
  const char* const count = std::getenv("TANDEM_HALF_OPEN");
  return count == nullptr ? 300 : std::atoi(count);
}

// Fewer connections exceed a lower limit.
int MaxConnections() { return std::min(HalfOpenConnections() / 3, kDefaultConnections); }

std::vector<std::string> Limits() {
  std::vector<std::string> flags = {fmt::format("--max-connections={}", MaxConnections())};
  // A large flood takes longer than this: then connections would end before there are too many. And
  // its handshakes take more memory.
  if (MaxConnections() < 1000) {
    flags.push_back("--handshake-seconds=2");
    flags.push_back(fmt::format("--grpc-memory-mib={}", kGrpcMemoryMib));
  }
  return flags;
}

std::string_view AsText(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class AbuseTest : public testing::TestWithParam<Security> {
 protected:
  static void TearDownTestSuite() {
    Fleets().clear();
    std::filesystem::remove_all(Directory());
  }
  void SetUp() override {
    std::unique_ptr<AbusedFleet>& fleet = Fleets()[GetParam()];
    if (fleet == nullptr) fleet = std::make_unique<AbusedFleet>(GetParam(), Directory(), Limits());
    fleet_ = fleet.get();
    for (const char* process : {"router", "decode-0"}) {
      const pid_t pid = fleet_->cluster().pid(process);
      ForgetPeak(pid);
      before_[process] = {.memory_kib = ResidentKib(pid), .descriptors = OpenDescriptors(pid)};
    }
  }
  // Honest peers are still served, and what attackers took has come back.
  void TearDown() override {
    fleet_->ServeHonestPeers();
    fleet_->cluster().WaitUntilIdle();
    ExpectLittleMemory();
    for (const auto& [process, before] : before_) {
      const pid_t pid = fleet_->cluster().pid(process);
      const int64_t most = before.descriptors;
      fleet_->cluster().WaitFor(
          process + " to close what peers left",
          [pid, most](const v1::GetStatusResponse&) { return OpenDescriptors(pid) <= most; });
    }
  }

  // At any moment of the test.
  void ExpectLittleMemory() {
    for (const auto& [process, before] : before_) {
      const int64_t growth = PeakResidentKib(fleet_->cluster().pid(process)) - before.memory_kib;
      RecordProperty("growth of " + process + " in KiB", std::to_string(growth));
      if (kIsSanitized) continue;  // freed memory stays with the sanitizer
      EXPECT_LE(growth, kMemorySlackKib + kConnectionKib * MaxConnections()) << process;
    }
  }

  std::map<std::string, int64_t> MemoryKib() {
    std::map<std::string, int64_t> memory;
    for (const auto& [process, before] : before_) {
      memory[process] = ResidentKib(fleet_->cluster().pid(process));
    }
    return memory;
  }

  static HostilePeer ConnectTo(const AbusedPort& port) {
    if (!port.has_tls) return HostilePeer(port.port);
    return HostilePeer(port.port, port.peer, port.protocol == PortProtocol::kGrpc ? "h2" : "");
  }

  // What a peer sends and then stops in the middle of, in place of a handshake or a request.
  static std::string Beginning(const AbusedPort& port) {
    if (port.has_tls) return TlsClientHello();
    switch (port.protocol) {
      case PortProtocol::kGrpc:
        return "PRI * HTTP/2.0\r\n";
      case PortProtocol::kHttp:
        return "GET /metrics HTTP/1.1\r\nX-Slow: ";
      case PortProtocol::kKv:
        return std::string(
                   AsText(HeaderBytes({.type = FrameType::kHello, .stream = 9, .block = 1})))
            .substr(0, 40);
    }
    return "";
  }

  // Opens that many connections that say nothing, or stop in the middle of a message or of a
  // handshake.
  void FloodWithHalfOpen(const AbusedPort& port, int connections);

 private:
  struct Use {
    int64_t memory_kib = 0;
    int64_t descriptors = 0;
  };

  static std::map<Security, std::unique_ptr<AbusedFleet>>& Fleets() {
    static auto* const fleets = new std::map<Security, std::unique_ptr<AbusedFleet>>;
    return *fleets;
  }
  static std::string Directory() {
    return fmt::format("{}/abuse-{}", testing::TempDir(), getpid());
  }

 protected:
  AbusedFleet* fleet_ = nullptr;
  std::map<std::string, Use> before_;
};

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

TEST_P(AbuseTest, LargeHttpRequestsAreRefusedUnread) {
  const std::string header = "POST /v1/completions HTTP/1.1\r\nHost: h\r\n";
  const std::string megabyte(1 << 20, 'x');
  for (const AbusedPort& port : fleet_->ports()) {
    if (port.protocol != PortProtocol::kHttp) continue;
    SCOPED_TRACE(port.name);
    const double refused = fleet_->Refused(port);
    HostilePeer headers = ConnectTo(port);
    headers.Send(fmt::format("{}X: {}", header, megabyte));
    EXPECT_THAT(headers.ReceiveAll(), StartsWith("HTTP/1.1 431"));
    HostilePeer length = ConnectTo(port);
    length.Send(header + "Content-Length: 1000000000000\r\n\r\n");
    EXPECT_THAT(length.ReceiveAll(), StartsWith("HTTP/1.1 413"));
    HostilePeer chunked = ConnectTo(port);
    chunked.Send(header + "Transfer-Encoding: chunked\r\n\r\n");
    // Without an end: more than is taken, and less than is thrown away after the refusal.
    for (int i = 0; i < 32 && chunked.Send("100000\r\n" + megabyte + "\r\n"); ++i) {
    }
    EXPECT_THAT(chunked.ReceiveAll(), StartsWith("HTTP/1.1 413"));
    EXPECT_EQ(fleet_->Refused(port), refused + 3);
  }
}

TEST_P(AbuseTest, GrpcCallsThatClaimMuchAndSendLittleEnd) {
  constexpr int kRounds = 8;
  for (const AbusedPort& port : fleet_->ports()) {
    if (port.protocol != PortProtocol::kGrpc) continue;
    SCOPED_TRACE(port.name);
    const std::string method = port.process == "router" ? kGenerate : kGenerateOnWorker;
    for (const std::string& bomb :
         {http2::HeadersOfSize(method, 1 << 20), http2::MessageOfLength(method, 0xFFFFFFFF)}) {
      for (int i = 0; i < kRounds; ++i) {
        HostilePeer peer = ConnectTo(port);
        peer.Send(http2::Opening() + bomb);
        EXPECT_TRUE(http2::EndsFirstStream(peer.ReceiveUntil(http2::EndsFirstStream)));
      }
    }
  }
}

TEST_P(AbuseTest, GrpcCallsWithTooManyHeadersAreRefused) {
  constexpr int kRounds = 4;
  const auto refused = [this] {
    return fleet_->Metric("router", "tandem_large_headers_refused_total", "");
  };
  const double before = refused();
  const AbusedPort& router = fleet_->ports().front();
  for (const std::string method : {kGenerate, "/tandem.v1.Inference/GetStatus"}) {
    for (int i = 0; i < kRounds; ++i) {
      HostilePeer peer = ConnectTo(router);
      peer.Send(http2::Opening() + http2::HeadersOfSize(method, 16 << 10));
      EXPECT_TRUE(http2::EndsWithStatus(peer.ReceiveUntil(http2::EndsFirstStream), '3')) << method;
    }
  }
  EXPECT_EQ(refused(), before + 2 * kRounds);
}

// gRPC gathers a message before it looks at its size, so that only --grpc-memory-mib bounds it.
// This one has more bytes than all that the process may take.
TEST_P(AbuseTest, LargeGrpcMessagesTakeNoMoreMemoryThanGrpcMayHave) {
  const std::string large(size_t{4 * kGrpcMemoryMib} << 20, '\x12');
  for (const AbusedPort& port : fleet_->ports()) {
    if (port.protocol != PortProtocol::kGrpc) continue;
    const grpc::Status status =
        StatusOfCall(fmt::format("127.0.0.1:{}", port.port), port.peer,
                     port.process == "router" ? kGenerate : kGenerateOnWorker, large);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED)
        << port.name << ": " << status.error_message();
  }
}

// Announced in a request of six bytes, and in one that is larger than what is taken.
TEST_P(AbuseTest, ABillionTokensAreRefused) {
  const std::string announced = "\x12\x80\xd0\xac\xf3\x0e";  // token_ids of 4e9 bytes
  const AbusedPort& router = fleet_->ports().front();
  const std::string address = fmt::format("127.0.0.1:{}", router.port);
  const grpc::Status status = StatusOfCall(address, router.peer, kGenerate, announced);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << status.error_message();
  const grpc::Status large =
      StatusOfCall(address, router.peer, kGenerate, std::string(16 << 20, '\x12'));
  EXPECT_EQ(large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << large.error_message();
}

TEST_P(AbuseTest, FramesThatClaimTooMuchEndTheConnection) {
  const AbusedPort& port = fleet_->ports().back();
  ASSERT_EQ(port.protocol, PortProtocol::kKv);
  const auto frame = [](const FrameHeader& header) {
    return std::string(AsText(HeaderBytes(header)));
  };
  const std::string hello = frame({.type = FrameType::kHello, .stream = 77, .block = 1});
  const uint64_t huge = uint64_t{1} << 62;
  const std::string claims[] = {
      frame({.type = FrameType::kData, .stream = 1, .payload_bytes = 0xFFFFFFFF}),
      frame({.type = FrameType::kAnnounce, .payload_bytes = 0xFFFFFFFF}),
      frame({.type = FrameType::kCredit, .frames = huge}),
      "GET / HTTP/1.1\r\nContent-Length: 4611686018427387904\r\n\r\n" + std::string(64, 'x')};
  for (const std::string& claim : claims) {
    const double refused = fleet_->Refused(port);
    HostilePeer peer = ConnectTo(port);
    peer.Send(hello + claim);
    peer.ReceiveAll();
    EXPECT_EQ(fleet_->Refused(port), refused + 1);
  }
  // A commit of a stream that nobody reserved is answered, whatever it claims.
  HostilePeer peer = ConnectTo(port);
  peer.Send(hello + frame({.type = FrameType::kCommit,
                           .stream = 1,
                           .epoch = 1,
                           .block = 1,
                           .frames = huge,
                           .sent_bytes = huge}));
  const std::string reject("TDK1\3\0\4", 7);
  const auto is_rejected = [&reject](std::string_view bytes) {
    return bytes.find(reject) != std::string_view::npos;
  };
  EXPECT_TRUE(is_rejected(peer.ReceiveUntil(is_rejected)));
}

INSTANTIATE_TEST_SUITE_P(Ports, AbuseTest, testing::Values(Security::kPlain, Security::kTls),
                         [](const auto& info) {
                           return info.param == Security::kTls ? "WithTls" : "WithoutTls";
                         });

}  // namespace
}  // namespace tandem::abuse_test
