#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "fmt/format.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"
#include "security/grpc/channel_tls.h"
#include "tests/support/test_certificates.h"
#include "tests/unit/security/secured_port.h"

namespace tandem::grpc_tls {

// Clients of every kind, by the certificates that they have, and their calls to a secured port.
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

}  // namespace tandem::grpc_tls
