// Who may call the gRPC ports of a router and of a worker, seen by clients of every kind.

#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "router/cluster/cluster.h"
#include "security/grpc/channel_tls.h"
#include "server/assembly/process_tls.h"
#include "server/services/cluster_service.h"
#include "server/services/connection_acceptor.h"
#include "server/services/grpc_server.h"
#include "tandem/v1/inference.grpc.pb.h"
#include "tandem/v1/worker.grpc.pb.h"
#include "tests/support/fake_clock.h"
#include "tests/support/test_certificates.h"
#include "tests/support/wait_limit.h"

namespace tandem::grpc_tls_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What is behind the checks: answers everything.
class AnsweringInference final : public v1::Inference::Service {
  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse*) override {
    return grpc::Status::OK;
  }
};
class AnsweringWorker final : public v1::Worker::Service {
  grpc::Status Release(grpc::ServerContext*, const v1::ReleaseRequest*,
                       v1::ReleaseResponse*) override {
    return grpc::Status::OK;
  }
};

// The port of a router or of a worker, with the real Cluster service.
class SecuredPort {
 public:
  static std::unique_ptr<SecuredPort> OfRouter(const TlsFiles& files, ClientCertificates clients) {
    auto port = std::unique_ptr<SecuredPort>(new SecuredPort);
    EXPECT_EQ(port->tls_.OpenForRouter(files, clients), absl::OkStatus());
    port->Serve(files);
    return port;
  }
  static std::unique_ptr<SecuredPort> OfWorker(const TlsFiles& files) {
    auto port = std::unique_ptr<SecuredPort>(new SecuredPort);
    EXPECT_EQ(port->tls_.OpenForWorker(files), absl::OkStatus());
    port->Serve(files);
    return port;
  }

  std::string address() const { return fmt::format("127.0.0.1:{}", acceptor_->port()); }
  // How often somebody was refused for that reason. gRPC tells of a failed handshake some time
  // after the client has noticed, so this waits until there is one.
  uint64_t AwaitRefused(TlsRefusalReason reason) const {
    const absl::Time end = absl::Now() + WaitLimit();
    while (Refused(reason) == 0 && absl::Now() < end) std::this_thread::yield();
    return Refused(reason);
  }
  Cluster& cluster() { return cluster_; }
  FakeClock& clock() { return clock_; }
  v1::ClusterCallUse cluster_calls() const { return cluster_service_->use(); }
  uint64_t Refused(TlsRefusalReason reason) const {
    for (const TlsRefusals::Count& count : tls_.refusals->counts()) {
      if (count.port == TlsPort::kGrpc && count.reason == reason) return count.refused;
    }
    return 0;
  }

 private:
  SecuredPort() = default;
  void Serve(const TlsFiles& files) {
    // As ProcessTls opens it, but looked at before each handshake.
    tls_.source = *TlsSource::Open(files, Duration::zero());
    cluster_service_ = std::make_unique<ClusterService>(cluster_, nullptr, 0, tls_.guard_or_null());
    acceptor_ = *ConnectionAcceptor::Listen("127.0.0.1", 0, {});
    GrpcServerOptions options;
    options.services = {{v1::Inference::service_full_name(), &inference_},
                        {v1::Worker::service_full_name(), &worker_},
                        {v1::Cluster::service_full_name(), cluster_service_.get()}};
    options.credentials = tls_.Credentials();
    options.tls_refusals = tls_.CountedRefusals();
    auto server = GrpcServer::Start(*acceptor_, options);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  ProcessTls tls_;
  FakeClock clock_;
  Cluster cluster_{{.model = "sample"}, clock_};
  AnsweringInference inference_;
  AnsweringWorker worker_;
  std::unique_ptr<ClusterService> cluster_service_;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
  std::unique_ptr<GrpcServer> server_;
};

class GrpcTlsTest : public testing::Test {
 protected:
  using Validity = TestAuthority::Validity;

  GrpcTlsTest()
      : directory_(fmt::format("{}/grpc_tls-{}", testing::TempDir(),
                               testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~GrpcTlsTest() override { std::filesystem::remove_all(directory_); }

  TlsFiles Of(const std::string& uri) const { return ours_.IssueFor("caller", {uri}); }
  TlsFiles Expired(const std::string& uri) const {
    return ours_.IssueFor("expired", {uri}, Validity::kExpired);
  }
  // Trusts this fleet, which does not trust it.
  TlsFiles Foreign(const std::string& uri) const {
    TlsFiles files = foreign_.IssueFor("foreign", {uri});
    files.ca = ours_.ca_file();
    return files;
  }
  TlsFiles NoCertificate() const { return {.ca = ours_.ca_file()}; }

  // A connection of its own. The server may have any identity of these roles.
  static std::shared_ptr<grpc::Channel> Connect(const SecuredPort& port, const TlsFiles& files) {
    std::optional<TlsMaterial> material;
    if (files != TlsFiles()) material = *LoadTlsMaterial(files);
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        port.address(),
        NewChannelCredentials(material ? &*material : nullptr,
                              {.roles = {IdentityRole::kRouter, IdentityRole::kWorker}}),
        arguments);
  }
  static grpc::Status GetStatus(const SecuredPort& port, const TlsFiles& files) {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    return v1::Inference::NewStub(Connect(port, files))->GetStatus(&context, {}, &response);
  }
  static grpc::Status Release(const SecuredPort& port, const TlsFiles& files) {
    grpc::ClientContext context;
    v1::ReleaseResponse response;
    return v1::Worker::NewStub(Connect(port, files))->Release(&context, {}, &response);
  }
  template <typename Request, typename Response>
  using ClusterMethod = grpc::Status (v1::Cluster::Stub::*)(grpc::ClientContext*, const Request&,
                                                            Response*);
  template <typename Request, typename Response>
  static grpc::Status CallCluster(const SecuredPort& port, const TlsFiles& files,
                                  ClusterMethod<Request, Response> method,
                                  const std::string& name) {
    const auto stub = v1::Cluster::NewStub(Connect(port, files));
    grpc::ClientContext context;
    Request request;
    request.set_name(name);
    Response response;
    return (stub.get()->*method)(&context, request, &response);
  }
  static grpc::Status Register(const SecuredPort& port, const TlsFiles& files,
                               const std::string& name) {
    return CallCluster(port, files, &v1::Cluster::Stub::Register, name);
  }
  static grpc::Status Heartbeat(const SecuredPort& port, const TlsFiles& files,
                                const std::string& name) {
    return CallCluster(port, files, &v1::Cluster::Stub::Heartbeat, name);
  }
  static grpc::Status Deregister(const SecuredPort& port, const TlsFiles& files,
                                 const std::string& name) {
    return CallCluster(port, files, &v1::Cluster::Stub::Deregister, name);
  }

  const std::string directory_;
  const TestAuthority ours_{(std::filesystem::create_directories(directory_), directory_), "ours"};
  const TestAuthority foreign_{directory_, "foreign"};
  const TlsFiles router_files_ = ours_.IssueFor("router", {"spiffe://tandem/router/r"});
  const TlsFiles worker_files_ = ours_.IssueFor("worker", {"spiffe://tandem/worker/w"});
};

TEST_F(GrpcTlsTest, AWorkerServesRouters) {
  const auto port = SecuredPort::OfWorker(worker_files_);
  const grpc::Status status = Release(*port, router_files_);
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(Release(*port, Of("spiffe://tandem/router/*")).ok());
}

TEST_F(GrpcTlsTest, AWorkerTakesCallsOfRoutersAlone) {
  const auto port = SecuredPort::OfWorker(worker_files_);
  for (const std::string role : {"worker", "client", "admin"}) {
    const grpc::Status status = Release(*port, Of("spiffe://tandem/" + role + "/x"));
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << role;
    EXPECT_THAT(status.error_message(), AllOf(HasSubstr("/tandem.v1.Worker/Release"),
                                              HasSubstr("spiffe://tandem/" + role + "/x"),
                                              HasSubstr("spiffe://tandem/router/*")));
  }
  EXPECT_EQ(port->Refused(TlsRefusalReason::kWrongRole), 3u);
  EXPECT_EQ(Release(*port, ours_.IssueFor("nobody", {})).error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(port->Refused(TlsRefusalReason::kNoIdentity), 1u);
}

// Not only the services that are written here are judged.
TEST_F(GrpcTlsTest, TheStandardServicesOfAWorkerAreForRoutersAlone) {
  const auto port = SecuredPort::OfWorker(worker_files_);
  const auto check = [&](const TlsFiles& files, const std::string& method) {
    grpc::GenericStub stub(Connect(*port, files));
    grpc::ClientContext context;
    grpc::ByteBuffer response;
    const grpc::Slice no_field;
    const grpc::ByteBuffer request(&no_field, 1);
    absl::Notification done;
    grpc::Status status;
    stub.UnaryCall(&context, method, {}, &request, &response, [&](const grpc::Status& end) {
      status = end;
      done.Notify();
    });
    Await(done);
    return status.error_code();
  };
  const TlsFiles client = Of("spiffe://tandem/client/c");
  constexpr char kHealth[] = "/grpc.health.v1.Health/Check";
  EXPECT_EQ(check(client, kHealth), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(check(client, "/no.such.Service/Method"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(check(router_files_, kHealth), grpc::StatusCode::OK);
  EXPECT_EQ(check(router_files_, "/no.such.Service/Method"), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(GrpcTlsTest, AWorkerTakesNoConnectionWithoutATrustedCertificate) {
  const auto port = SecuredPort::OfWorker(worker_files_);
  const std::string router = "spiffe://tandem/router/r";
  const std::pair<TlsFiles, TlsRefusalReason> cases[] = {
      {NoCertificate(), TlsRefusalReason::kNoCertificate},
      {Expired(router), TlsRefusalReason::kUntrusted},
      {TlsFiles(), TlsRefusalReason::kNotTls}};
  for (const auto& [files, reason] : cases) {
    EXPECT_EQ(Release(*port, files).error_code(), grpc::StatusCode::UNAVAILABLE) << Name(reason);
    EXPECT_GE(port->AwaitRefused(reason), 1u) << Name(reason);
  }
  EXPECT_EQ(Release(*port, Foreign(router)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(Release(*port, router_files_).ok()) << "and those with one are still served";
}

TEST_F(GrpcTlsTest, ARouterServesClientsWithAndWithoutACertificate) {
  const auto port = SecuredPort::OfRouter(router_files_, ClientCertificates::kOptional);
  for (const TlsFiles& files : {NoCertificate(), Of("spiffe://tandem/client/c"), worker_files_}) {
    const grpc::Status status = GetStatus(*port, files);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST_F(GrpcTlsTest, ARouterRefusesCertificatesThatItDoesNotTrust) {
  const std::string client = "spiffe://tandem/client/c";
  const auto port = SecuredPort::OfRouter(router_files_, ClientCertificates::kOptional);
  EXPECT_EQ(GetStatus(*port, Foreign(client)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(GetStatus(*port, Expired(client)).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_GE(port->AwaitRefused(TlsRefusalReason::kUntrusted), 1u);
}

TEST_F(GrpcTlsTest, ARouterThatRequiresThemServesClientsAndAdminsAlone) {
  const auto port = SecuredPort::OfRouter(router_files_, ClientCertificates::kRequired);
  EXPECT_TRUE(GetStatus(*port, Of("spiffe://tandem/client/c")).ok());
  EXPECT_TRUE(GetStatus(*port, Of("spiffe://tandem/admin/a")).ok());
  EXPECT_EQ(GetStatus(*port, worker_files_).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(GetStatus(*port, NoCertificate()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_GE(port->AwaitRefused(TlsRefusalReason::kNoCertificate), 1u);
  EXPECT_EQ(Deregister(*port, worker_files_, "w").error_code(), grpc::StatusCode::OK)
      << "workers still join";
}

TEST_F(GrpcTlsTest, OnlyAWorkerSpeaksForItsName) {
  const auto port = SecuredPort::OfRouter(router_files_, ClientCertificates::kOptional);
  const auto each = [&](const TlsFiles& files, const std::string& name, grpc::StatusCode expected) {
    for (const grpc::Status& status : {Register(*port, files, name), Heartbeat(*port, files, name),
                                       Deregister(*port, files, name)}) {
      EXPECT_EQ(status.error_code(), expected) << status.error_message();
    }
  };
  each(NoCertificate(), "w", grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(port->Refused(TlsRefusalReason::kNoCertificate), 3u);
  each(Of("spiffe://tandem/client/w"), "w", grpc::StatusCode::PERMISSION_DENIED);
  each(router_files_, "w", grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(port->Refused(TlsRefusalReason::kWrongRole), 6u);
  each(worker_files_, "other", grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(port->Refused(TlsRefusalReason::kWrongName), 3u);
  EXPECT_THAT(Register(*port, worker_files_, "other").error_message(),
              AllOf(HasSubstr("spiffe://tandem/worker/w was presented"),
                    HasSubstr("spiffe://tandem/worker/other is needed")));
}

// Past the check the cluster itself answers: it refuses a registration without a role, and does not
// know the worker yet.
TEST_F(GrpcTlsTest, AWorkerJoinsUnderItsName) {
  const auto port = SecuredPort::OfRouter(router_files_, ClientCertificates::kOptional);
  for (const TlsFiles& files : {worker_files_, Of("spiffe://tandem/worker/*")}) {
    EXPECT_EQ(Register(*port, files, "w").error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(Heartbeat(*port, files, "w").error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(Deregister(*port, files, "w").error_code(), grpc::StatusCode::OK);
  }
}

// All with the worker's own certificate: another life of the process, or somebody who has its
// files.
TEST_F(GrpcTlsTest, HeartbeatsCountForTheProcessAloneThatHasTheName) {
  const auto port = SecuredPort::OfRouter(router_files_, ClientCertificates::kOptional);
  const auto registers = [&](uint64_t incarnation) {
    v1::RegisterRequest request;
    request.set_name("w");
    request.set_incarnation(incarnation);
    request.set_role(v1::WORKER_ROLE_UNIFIED);
    request.set_address("127.0.0.1:1");
    request.set_model("sample");
    request.set_model_fingerprint(1);
    request.set_device("cpu");
    request.set_max_context_tokens(100);
    v1::KvLayout& layout = *request.mutable_layout();
    layout.set_num_layers(4);
    layout.set_num_kv_heads(2);
    layout.set_head_dim(64);
    layout.set_block_tokens(16);
    layout.set_dtype("bf16");
    grpc::ClientContext context;
    v1::RegisterResponse response;
    return v1::Cluster::NewStub(Connect(*port, worker_files_))
        ->Register(&context, request, &response)
        .error_code();
  };
  const auto beats = [&](uint64_t incarnation, int32_t running) {
    v1::HeartbeatRequest request;
    request.set_name("w");
    request.set_incarnation(incarnation);
    request.mutable_load()->set_running(running);
    grpc::ClientContext context;
    v1::HeartbeatResponse response;
    return v1::Cluster::NewStub(Connect(*port, worker_files_))
        ->Heartbeat(&context, request, &response)
        .error_code();
  };
  const auto running = [&] { return port->cluster().View()->workers.at(0).load->running(); };
  ASSERT_EQ(registers(10), grpc::StatusCode::OK);
  ASSERT_EQ(beats(10, 3), grpc::StatusCode::OK);
  for (const uint64_t incarnation : {0, 9, 11}) {
    EXPECT_EQ(beats(incarnation, 77), grpc::StatusCode::NOT_FOUND) << incarnation;
  }
  EXPECT_EQ(registers(11), grpc::StatusCode::FAILED_PRECONDITION) << "the holder is alive";
  EXPECT_EQ(running(), 3);
  EXPECT_EQ(port->cluster_calls().refused_heartbeats(), 3u);
  EXPECT_EQ(port->cluster_calls().refused_registrations(), 1u);
  // The holder has ended and was started again; what the former one sent is replayed.
  port->clock().Advance(3 * port->cluster().options().heartbeat);
  ASSERT_EQ(registers(11), grpc::StatusCode::OK);
  ASSERT_EQ(beats(11, 4), grpc::StatusCode::OK);
  EXPECT_EQ(beats(10, 3), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(registers(10), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(running(), 4);
  EXPECT_EQ(port->cluster_calls().refused_heartbeats(), 4u);
}

// A router that calls a worker by its name, and clients that call a router.
TEST_F(GrpcTlsTest, AServerWithAnotherIdentityGetsNoCall) {
  const auto port = SecuredPort::OfWorker(worker_files_);
  const TlsMaterial material = *LoadTlsMaterial(router_files_);
  const auto release_as = [&](const NeededIdentity& server) {
    grpc::ClientContext context;
    v1::ReleaseResponse response;
    return v1::Worker::NewStub(
               grpc::CreateChannel(port->address(), NewChannelCredentials(&material, server)))
        ->Release(&context, {}, &response);
  };
  EXPECT_TRUE(release_as({.roles = {IdentityRole::kWorker}, .name = "w"}).ok());
  const grpc::Status other = release_as({.roles = {IdentityRole::kWorker}, .name = "decode-0"});
  EXPECT_EQ(other.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(other.error_message(), HasSubstr("spiffe://tandem/worker/decode-0 is needed"));
  EXPECT_EQ(release_as({.roles = {IdentityRole::kRouter}}).error_code(),
            grpc::StatusCode::UNAVAILABLE);
  const auto credentials = ClientCredentials({.ca = foreign_.ca_file()});
  ASSERT_TRUE(credentials.ok()) << credentials.status();
  grpc::ClientContext context;
  v1::GetStatusResponse response;
  EXPECT_EQ(v1::Inference::NewStub(grpc::CreateChannel(port->address(), *credentials))
                ->GetStatus(&context, {}, &response)
                .error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcTlsTest, NewConnectionsUseTheFilesAsTheyAreThen) {
  const auto port = SecuredPort::OfRouter(router_files_, ClientCertificates::kOptional);
  const TlsFiles before = NoCertificate();
  const auto kept = v1::Inference::NewStub(Connect(*port, before));
  const auto ask = [&kept] {
    grpc::ClientContext context;
    v1::GetStatusResponse response;
    return kept->GetStatus(&context, {}, &response);
  };
  EXPECT_TRUE(ask().ok());
  // Half of a new certificate.
  const TlsFiles next = foreign_.IssueFor("next", {"spiffe://tandem/router/r"});
  std::filesystem::rename(next.cert, router_files_.cert);
  EXPECT_TRUE(GetStatus(*port, before).ok()) << "the former certificate stays in use";
  std::filesystem::rename(next.key, router_files_.key);
  EXPECT_EQ(GetStatus(*port, before).error_code(), grpc::StatusCode::UNAVAILABLE);
  const grpc::Status after = GetStatus(*port, {.ca = foreign_.ca_file()});
  EXPECT_TRUE(after.ok()) << after.error_message();
  EXPECT_TRUE(ask().ok()) << "a connection that is open stays";
}

}  // namespace
}  // namespace tandem::grpc_tls_test
