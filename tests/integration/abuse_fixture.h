#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/support/abused_fleet.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/process_use.h"
#include "tests/support/raw_peer.h"
#include "tests/support/sanitized.h"

namespace tandem::abuse {

using Security = AbusedFleet::Security;

// By how much the resident memory of a process may grow while it is attacked: for each connection
// that its limit allows, and for all else, of which gRPC may have 64 MiB and takes up to twice
// that.
inline constexpr int64_t kConnectionKib = 32;
inline constexpr int64_t kMemorySlackKib = 160 << 10;
inline constexpr int kDefaultConnections = 4096;  // --max-connections
inline constexpr int kGrpcMemoryMib = 64;

// Connections that say too little; make test-long opens as many as a large attack would.
inline int HalfOpenConnections() {
  const char* const count = std::getenv("TANDEM_HALF_OPEN");
  return count == nullptr ? 300 : std::atoi(count);
}

// Fewer connections exceed a lower limit.
inline int MaxConnections() { return std::min(HalfOpenConnections() / 3, kDefaultConnections); }

inline std::vector<std::string> Limits() {
  std::vector<std::string> flags = {fmt::format("--max-connections={}", MaxConnections())};
  // A large flood takes longer than this: then connections would end before there are too many. And
  // its handshakes take more memory.
  if (MaxConnections() < 1000) {
    flags.push_back("--handshake-seconds=2");
    flags.push_back(fmt::format("--grpc-memory-mib={}", kGrpcMemoryMib));
  }
  return flags;
}

inline std::string_view AsText(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A router, a prefill and a decode worker with TLS or without, whose ports a test attacks. After each
// test honest peers must still be served, and memory and descriptors must have come back.
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

}  // namespace tandem::abuse
