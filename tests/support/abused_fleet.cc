#include "tests/support/abused_fleet.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/http_peer.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

constexpr char kHealthCheck[] = "/grpc.health.v1.Health/Check";

// A free port of those that the system gives to nobody unasked: between the choice and the start of
// the process that gets it, others connect and listen.
uint16_t ChoosePort() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(10'000, 32'000);
  while (true) {
    const auto port = static_cast<uint16_t>(ports(random));
    if (Listen("127.0.0.1", port).ok()) return port;
  }
}

uint16_t PortOf(const std::string& address) {
  return static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1)));
}

void AskHttp(uint16_t port, const TlsFiles& files) {
  const std::string body = R"({"prompt": "It was", "max_tokens": 2, "seed": 1})";
  const std::string request = fmt::format(
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: "
      "{}\r\n\r\n{}",
      body.size(), body);
  auto peer = files == TlsFiles() ? HostilePeer(port) : HostilePeer(port, files);
  peer.Send(request);
  EXPECT_TRUE(peer.ReceiveAll().starts_with("HTTP/1.1 200"));
}

}  // namespace

AbusedFleet::AbusedFleet(Security security, const std::string& directory,
                         const std::vector<std::string>& flags)
    : security_(security),
      authority_((std::filesystem::create_directories(directory), directory), "ours"),
      router_(authority_.IssueFor("router", {"spiffe://tandem/router/r"})),
      prefill_(authority_.IssueFor("prefill", {"spiffe://tandem/worker/prefill-0"})),
      decode_(authority_.IssueFor("decode", {"spiffe://tandem/worker/decode-0"})),
      client_(authority_.IssueFor("client", {"spiffe://tandem/client/c"})),
      http_port_(ChoosePort()),
      metrics_ports_(
          {{"router", ChoosePort()}, {"prefill-0", ChoosePort()}, {"decode-0", ChoosePort()}}),
      data_port_(ChoosePort()),
      cluster_(std::make_unique<TestCluster>(Options(flags))) {
  ListPorts();
  ServeHonestPeers();
}

std::vector<std::string> AbusedFleet::TlsFlags(const TlsFiles& files) const {
  if (!has_tls()) return {};
  return {"--tls-cert=" + files.cert, "--tls-key=" + files.key, "--tls-ca=" + files.ca};
}

TestClusterOptions AbusedFleet::Options(const std::vector<std::string>& flags) const {
  const auto more = [&](const std::string& process, const TlsFiles& files) {
    std::vector<std::string> all = TlsFlags(files);
    all.push_back(fmt::format("--metrics-port={}", MetricsPort(process)));
    return all;
  };
  TestClusterOptions options{.unified = 0,
                             .router_flags = more("router", router_),
                             .worker_flags = flags,
                             .prefill_flags = more("prefill-0", prefill_),
                             .decode_flags = more("decode-0", decode_),
                             .client_tls = has_tls() ? client_ : TlsFiles()};
  options.worker_flags.push_back("--kv-transport=tcp");
  options.decode_flags.push_back(fmt::format("--data-port={}", data_port_));
  options.router_flags.push_back(fmt::format("--http-port={}", http_port_));
  if (has_tls()) options.router_flags.push_back("--tls-clients=require");
  options.router_flags.insert(options.router_flags.end(), flags.begin(), flags.end());
  return options;
}

uint16_t AbusedFleet::MetricsPort(const std::string& process) const {
  return std::ranges::find(metrics_ports_, process, &std::pair<std::string, uint16_t>::first)
      ->second;
}

std::string AbusedFleet::WorkerAddress(const std::string& name) {
  const auto status = cluster_->client().GetStatus(std::chrono::minutes(1));
  EXPECT_TRUE(status.ok()) << status.status();
  const v1::WorkerStatus* const worker = status.ok() ? FindWorker(*status, name) : nullptr;
  EXPECT_NE(worker, nullptr) << name;
  return worker == nullptr ? "127.0.0.1:1" : worker->address();
}

void AbusedFleet::ListPorts() {
  const auto grpc_counters = [](const std::string& server) {
    const std::string label = "server=\"" + server + '"';
    return std::vector<std::pair<std::string, std::string>>{
        {"tandem_connections_evicted_total", label}, {"tandem_connections_refused_total", label}};
  };
  const auto files = [this](const TlsFiles& peer) { return has_tls() ? peer : TlsFiles(); };
  const auto metrics = [this](const std::string& process) {
    return AbusedPort{.name = "metrics of " + process,
                      .process = process,
                      .port = MetricsPort(process),
                      .counters = {{"tandem_metrics_port_connections_evicted_total", ""},
                                   {"tandem_metrics_port_requests_refused_total", ""}}};
  };
  ports_ = {{.name = "gRPC of the router",
             .process = "router",
             .port = PortOf(cluster_->address()),
             .protocol = PortProtocol::kGrpc,
             .has_tls = has_tls(),
             .peer = files(client_),
             .counters = grpc_counters("router")},
            {.name = "HTTP of the router",
             .process = "router",
             .port = http_port_,
             .has_tls = has_tls(),
             .peer = files(client_),
             .counters = {{"tandem_http_connections_evicted_total", ""},
                          {"tandem_http_requests_refused_total", ""}}},
            metrics("router"),
            {.name = "gRPC of a worker",
             .process = "decode-0",
             .port = PortOf(WorkerAddress("decode-0")),
             .protocol = PortProtocol::kGrpc,
             .has_tls = has_tls(),
             .peer = files(router_),
             .counters = grpc_counters("decode-0")},
            metrics("decode-0"),
            {.name = "KV of a decode worker",
             .process = "decode-0",
             .port = data_port_,
             .protocol = PortProtocol::kKv,
             .has_tls = has_tls(),
             .peer = files(prefill_),
             .counters = {{"tandem_refused_connections_total", ""}}}};
}

std::chrono::nanoseconds AbusedFleet::ServeHonestPeers() {
  const auto begin = std::chrono::steady_clock::now();
  for (const AbusedPort& port : ports_) {
    const std::string address = fmt::format("127.0.0.1:{}", port.port);
    if (port.protocol == PortProtocol::kGrpc) {
      const grpc::Status status = StatusOfCall(address, port.peer, kHealthCheck);
      EXPECT_TRUE(status.ok()) << port.name << ": " << status.error_message();
    } else if (port.protocol == PortProtocol::kHttp && port.name.starts_with("metrics")) {
      EXPECT_EQ(HttpGet(port.port, "/metrics").status, 200) << port.name;
    } else if (port.protocol == PortProtocol::kHttp) {
      AskHttp(port.port, port.peer);
    }
  }
  const Outcome outcome =
      Ask(cluster_->client(), TextRequest("It was a fine morning", v1::ROUTE_DISAGGREGATED, 4));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  return std::chrono::steady_clock::now() - begin;
}

std::chrono::nanoseconds AbusedFleet::HonestTime() {
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < 5; ++i) times.push_back(ServeHonestPeers());
  std::ranges::nth_element(times, times.begin() + 2);
  return times[2];
}

double AbusedFleet::Metric(const std::string& process, std::string_view name,
                           std::string_view labels) const {
  const HttpReply page = HttpGet(MetricsPort(process), "/metrics");
  EXPECT_EQ(page.status, 200) << process;
  double sum = 0;
  for (const absl::string_view line : absl::StrSplit(page.body, '\n')) {
    const std::string_view text(line.data(), line.size());
    if (!text.starts_with(name) || text.find_first_of("{ ") != name.size()) continue;
    if (text.find(labels) == std::string_view::npos) continue;
    sum += std::stod(std::string(text.substr(text.rfind(' ') + 1)));
  }
  return sum;
}

double AbusedFleet::Refused(const AbusedPort& port) const {
  double sum = 0;
  for (const auto& [name, labels] : port.counters) sum += Metric(port.process, name, labels);
  return sum;
}

}  // namespace tandem
