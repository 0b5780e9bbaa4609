#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/test_certificates.h"
#include "tests/support/test_cluster.h"

namespace tandem {

enum class PortProtocol : uint8_t { kGrpc, kHttp, kKv };

// A port of a process, and where that process counts whom it refused there.
struct AbusedPort {
  std::string name;     // for messages of tests
  std::string process;  // as TestCluster calls it
  uint16_t port = 0;
  PortProtocol protocol = PortProtocol::kHttp;
  bool has_tls = false;
  TlsFiles peer;  // by which the port lets its peers in; empty without TLS
  // Metrics of the process's page, each with a text that its labels contain.
  std::vector<std::pair<std::string, std::string>> counters;
};

// A router, a prefill and a decode worker with all ports that the program has, with TLS or without,
// and honest peers that use all of them.
class AbusedFleet {
 public:
  enum class Security : bool { kPlain, kTls };

  // `flags` are those of the router and of both workers. Certificates are written to `directory`.
  AbusedFleet(Security security, const std::string& directory,
              const std::vector<std::string>& flags);

  TestCluster& cluster() { return *cluster_; }
  const std::vector<AbusedPort>& ports() const { return ports_; }
  const TestAuthority& authority() const { return authority_; }
  const TlsFiles& client_files() const { return client_; }
  bool has_tls() const { return security_ == Security::kTls; }

  // Asks each port once on new connections, and sends a request that both workers serve; fails the
  // test where one is not answered. Returns the time of all together.
  std::chrono::nanoseconds ServeHonestPeers();
  // The median of five of these.
  std::chrono::nanoseconds HonestTime();
  // How often the port's process has counted a refusal there.
  double Refused(const AbusedPort& port) const;
  // The value of the metric on a process's page: the sum of the lines whose labels contain the
  // text.
  double Metric(const std::string& process, std::string_view name, std::string_view labels) const;

 private:
  std::vector<std::string> TlsFlags(const TlsFiles& files) const;
  TestClusterOptions Options(const std::vector<std::string>& flags) const;
  void ListPorts();
  uint16_t MetricsPort(const std::string& process) const;
  std::string WorkerAddress(const std::string& name);

  const Security security_;
  const TestAuthority authority_;
  const TlsFiles router_;
  const TlsFiles prefill_;
  const TlsFiles decode_;
  const TlsFiles client_;
  const uint16_t http_port_;
  const std::vector<std::pair<std::string, uint16_t>> metrics_ports_;  // by process
  const uint16_t data_port_;
  std::unique_ptr<TestCluster> cluster_;
  std::vector<AbusedPort> ports_;
};

}  // namespace tandem
