// A whole fleet with TLS, and peers that have a certificate which is not good for what they do:
// each call and each frame of theirs is refused and counted.

#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"
#include "tandem/v1/cluster.pb.h"
#include "tandem/v1/worker.pb.h"
#include "tests/support/abused_fleet.h"
#include "tests/support/call_by_bytes.h"
#include "tests/support/hostile_peer.h"
#include "tests/support/raw_peer.h"

namespace tandem::hostile_peers_test {
namespace {

using grpc::StatusCode;
using ::testing::AnyOf;

// All methods of the service that a file of proto/ defines, as gRPC calls them.
std::vector<std::string> MethodsOf(const google::protobuf::FileDescriptor& file) {
  std::vector<std::string> methods;
  const google::protobuf::ServiceDescriptor& service = *file.service(0);
  for (int i = 0; i < service.method_count(); ++i) {
    methods.push_back("/" + service.full_name() + "/" + service.method(i)->name());
  }
  return methods;
}

std::string Frame(const FrameHeader& header) {
  const std::vector<std::byte> bytes = HeaderBytes(header);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class HostilePeersTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fleet_ = new AbusedFleet(AbusedFleet::Security::kTls, Directory(), {});
    foreign_ = new TestAuthority(Directory(), "foreign");
  }
  static void TearDownTestSuite() {
    delete foreign_;
    delete fleet_;
    std::filesystem::remove_all(Directory());
  }
  // Honest peers are served, and nobody has taken anything.
  void TearDown() override {
    fleet_->ServeHonestPeers();
    fleet_->cluster().WaitUntilIdle();
  }

  static std::string Directory() {
    return fmt::format("{}/hostile_peers-{}", testing::TempDir(), getpid());
  }
  // With the authority of this fleet.
  static TlsFiles With(const std::string& identity) {
    return fleet_->authority().IssueFor("hostile", {"spiffe://tandem/" + identity});
  }
  static TlsFiles WithoutIdentity() { return fleet_->authority().IssueFor("nobody", {}); }
  // Trusts this fleet, which does not trust it.
  static TlsFiles Foreign(const std::string& identity) {
    TlsFiles files = foreign_->IssueFor("foreign", {"spiffe://tandem/" + identity});
    files.ca = fleet_->authority().ca_file();
    return files;
  }
  static TlsFiles NoCertificate() { return {.ca = fleet_->authority().ca_file()}; }
  static const AbusedPort& Port(const std::string& name) {
    return *std::ranges::find(fleet_->ports(), name, &AbusedPort::name);
  }
  static std::string Address(const AbusedPort& port) {
    return fmt::format("127.0.0.1:{}", port.port);
  }
  // How often a process has refused somebody at a port ("grpc", "kv", "http") for that reason.
  static double Refused(const std::string& process, std::string_view port,
                        std::string_view reason) {
    return fleet_->Metric(
        process, "tandem_tls_refused_total",
        fmt::format("server=\"{}\",port=\"{}\",reason=\"{}\"", process, port, reason));
  }

  // Every one of the methods is refused to these identities, and each refusal counted.
  static void ExpectRefused(const AbusedPort& port, const std::vector<std::string>& methods,
                            const std::vector<std::string>& identities) {
    const double refused = Refused(port.process, "grpc", "wrong_role");
    for (const std::string& identity : identities) {
      const TlsFiles files = With(identity);
      for (const std::string& method : methods) {
        const grpc::Status status = StatusOfCall(Address(port), files, method);
        EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED)
            << identity << " calls " << method << ": " << status.error_message();
      }
    }
    EXPECT_EQ(Refused(port.process, "grpc", "wrong_role"),
              refused + static_cast<double>(methods.size() * identities.size()));
  }
  // Nobody gets a connection there without a certificate of this fleet.
  static void ExpectNoConnection(const AbusedPort& port, const std::string& method,
                                 const std::string& identity) {
    for (const TlsFiles& files : {NoCertificate(), Foreign(identity), TlsFiles()}) {
      const grpc::Status status = StatusOfCall(Address(port), files, method);
      EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE) << status.error_message();
    }
  }

  static inline AbusedFleet* fleet_ = nullptr;
  static inline TestAuthority* foreign_ = nullptr;
};

TEST_F(HostilePeersTest, NoCallOfAWorkerIsForOthersThanRouters) {
  const AbusedPort& worker = Port("gRPC of a worker");
  const std::vector<std::string> methods = MethodsOf(*v1::PrefillRequest::descriptor()->file());
  ExpectRefused(worker, methods, {"client/c", "admin/a", "worker/prefill-0", "worker/*"});
  for (const std::string& method : methods) {
    EXPECT_EQ(StatusOfCall(Address(worker), WithoutIdentity(), method).error_code(),
              StatusCode::UNAUTHENTICATED);
  }
  ExpectNoConnection(worker, methods.front(), "router/r");
}

TEST_F(HostilePeersTest, NoCallForClientsIsForWorkersAndOtherRouters) {
  const AbusedPort& router = Port("gRPC of the router");
  const std::vector<std::string> methods = MethodsOf(*v1::GenerateRequest::descriptor()->file());
  ExpectRefused(router, methods, {"worker/prefill-0", "worker/*", "router/r"});
  ExpectNoConnection(router, methods.front(), "client/c");
}

TEST_F(HostilePeersTest, NoCallForWorkersIsForOthers) {
  const AbusedPort& router = Port("gRPC of the router");
  ExpectRefused(router, MethodsOf(*v1::RegisterRequest::descriptor()->file()),
                {"client/c", "admin/a", "router/r"});
}

TEST_F(HostilePeersTest, AWorkerCannotSpeakForAnother) {
  const AbusedPort& router = Port("gRPC of the router");
  const pid_t pid = fleet_->cluster().pid("decode-0");
  const std::vector<std::string> methods = MethodsOf(*v1::RegisterRequest::descriptor()->file());
  const TlsFiles thief = With("worker/prefill-0");
  const double refused = Refused("router", "grpc", "wrong_name");
  v1::RegisterRequest
      request;  // all requests of the service begin with the name and the incarnation
  request.set_name("decode-0");
  request.set_incarnation(~uint64_t{0});
  for (const std::string& method : methods) {
    const grpc::Status status =
        StatusOfCall(Address(router), thief, method, request.SerializeAsString());
    EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED) << status.error_message();
  }
  EXPECT_EQ(Refused("router", "grpc", "wrong_name"), refused + static_cast<double>(methods.size()));
  const auto status = fleet_->cluster().client().GetStatus(std::chrono::minutes(1));
  ASSERT_TRUE(status.ok()) << status.status();
  const v1::WorkerStatus* const decode = FindWorker(*status, "decode-0");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->pid(), pid);
  EXPECT_TRUE(decode->alive());
}

// With the certificate of the worker itself, but not of the process that has its name.
TEST_F(HostilePeersTest, AHeartbeatOfAnotherProcessIsRefused) {
  const AbusedPort& router = Port("gRPC of the router");
  const double refused = fleet_->Metric("router", "tandem_heartbeats_refused_total", "");
  v1::HeartbeatRequest request;
  request.set_name("decode-0");
  request.set_leaving(true);
  for (const uint64_t incarnation : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
    request.set_incarnation(incarnation);
    const grpc::Status status =
        StatusOfCall(Address(router), With("worker/decode-0"), "/tandem.v1.Cluster/Heartbeat",
                     request.SerializeAsString());
    EXPECT_EQ(status.error_code(), StatusCode::NOT_FOUND) << status.error_message();
  }
  EXPECT_EQ(fleet_->Metric("router", "tandem_heartbeats_refused_total", ""), refused + 3);
}

TEST_F(HostilePeersTest, OnlyWorkersOfTheFleetGetAConnectionForKv) {
  const AbusedPort& kv = Port("KV of a decode worker");
  const std::string hello = Frame({.type = FrameType::kHello, .stream = 3, .block = 1});
  const std::pair<TlsFiles, std::string> cases[] = {
      {With("client/c"), "wrong_role"},    {With("router/r"), "wrong_role"},
      {With("admin/a"), "wrong_role"},     {WithoutIdentity(), "no_identity"},
      {NoCertificate(), "no_certificate"}, {Foreign("worker/prefill-0"), "untrusted"}};
  for (const auto& [files, reason] : cases) {
    const double refused = Refused("decode-0", "kv", reason);
    HostilePeer peer(kv.port, files);
    peer.Send(hello);
    EXPECT_LE(peer.ReceiveAll().size(), 1u)
        << reason << ": no frame, at most the mark of a refusal";
    EXPECT_EQ(Refused("decode-0", "kv", reason), refused + 1) << reason;
  }
  const double refused = Refused("decode-0", "kv", "not_tls");
  HostilePeer plain(kv.port);
  plain.Send(hello);
  plain.ReceiveAll();
  EXPECT_EQ(Refused("decode-0", "kv", "not_tls"), refused + 1);
}

// A worker of the fleet that pushes KV which nobody has reserved blocks for.
TEST_F(HostilePeersTest, FramesOfForeignHandOffsAreRejected) {
  const AbusedPort& kv = Port("KV of a decode worker");
  const std::string reject("TDK1\3\0\4", 7);
  const auto frames = [] { return fleet_->Metric("decode-0", "tandem_refused_frames_total", ""); };
  for (const uint64_t stream : {uint64_t{1}, uint64_t{2}, ~uint64_t{0}}) {
    for (const FrameType type : {FrameType::kData, FrameType::kCommit, FrameType::kRenew}) {
      const double refused = frames();
      FrameHeader header{.type = type, .stream = stream, .epoch = 1};
      if (type == FrameType::kCommit) header.block = 1;
      if (type == FrameType::kData) header.payload_bytes = 64;
      HostilePeer peer(kv.port, kv.peer);
      peer.Send(Frame({.type = FrameType::kHello, .stream = 5, .block = 1}) + Frame(header) +
                std::string(header.payload_bytes, 'k'));
      peer.ReceiveUntil([&reject](std::string_view bytes) {
        return bytes.find(reject) != std::string_view::npos;
      });
      EXPECT_GT(frames(), refused) << stream << " " << static_cast<int>(type);
    }
  }
}

}  // namespace
}  // namespace tandem::hostile_peers_test
