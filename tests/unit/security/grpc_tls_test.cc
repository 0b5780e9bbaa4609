// Who may call the gRPC ports of a router and of a worker, seen by clients of every kind.

#include <filesystem>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/support/wait_limit.h"
#include "tests/unit/security/grpc_tls_fixture.h"

namespace tandem::grpc_tls_test {
namespace {

using grpc_tls::GrpcTlsTest;
using grpc_tls::SecuredPort;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
