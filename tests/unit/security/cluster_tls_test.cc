// Who may register with a router, send it heartbeats and leave it in the name of a worker.

#include <cstdint>
#include <string>

#include "gmock/gmock.h"
#include "grpcpp/client_context.h"
#include "gtest/gtest.h"
#include "tests/unit/security/grpc_tls_fixture.h"

namespace tandem::cluster_tls_test {
namespace {

using grpc_tls::GrpcTlsTest;
using grpc_tls::SecuredPort;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace tandem::cluster_tls_test
