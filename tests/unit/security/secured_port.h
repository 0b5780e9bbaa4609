#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "router/cluster/cluster.h"
#include "server/assembly/process_tls.h"
#include "server/services/cluster_service.h"
#include "server/services/connection_acceptor.h"
#include "server/services/grpc_server.h"
#include "tandem/v1/inference.grpc.pb.h"
#include "tandem/v1/worker.grpc.pb.h"
#include "tests/support/fake_clock.h"
#include "tests/support/wait_limit.h"

namespace tandem::grpc_tls {

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

}  // namespace tandem::grpc_tls
