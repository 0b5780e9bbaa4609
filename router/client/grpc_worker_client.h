#pragma once

#include <map>
#include <memory>
#include <utility>

#include "grpcpp/channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "router/client/worker_client.h"
#include "router/event_loop.h"
#include "security/tls_source.h"
#include "tandem/v1/worker.grpc.pb.h"

namespace tandem {

// Trailing metadata that a worker adds to each of its answers: an UNAVAILABLE without it comes from
// the network, so the worker itself is gone.
inline constexpr char kOriginKey[] = "tandem-origin";
inline constexpr char kOriginWorker[] = "worker";
inline constexpr char kOriginRouter[] = "router";  // what a router adds to answers to clients

// Calls workers by gRPC, over one channel per life of a worker.
class GrpcWorkerClient final : public WorkerClient {
 public:
  // Handlers run on `loop`, which must run no more tasks when the client is destroyed; calls keep
  // the loop alive until gRPC is done with them. `tls` secures the calls: a worker must show the
  // identity of a worker of its name. Null: without TLS.
  explicit GrpcWorkerClient(std::shared_ptr<EventLoop> loop,
                            std::shared_ptr<TlsSource> tls = nullptr)
      : loop_(std::move(loop)), tls_(std::move(tls)) {}

  std::unique_ptr<WorkerCall> Generate(const WorkerEndpoint& worker,
                                       const v1::GenerateOnWorkerRequest& request,
                                       const CallOptions& options,
                                       StreamHandlers handlers) override;
  std::unique_ptr<WorkerCall> Prefill(const WorkerEndpoint& worker,
                                      const v1::PrefillRequest& request, const CallOptions& options,
                                      StreamHandlers handlers) override;
  std::unique_ptr<WorkerCall> Decode(const WorkerEndpoint& worker, const v1::DecodeRequest& request,
                                     const CallOptions& options, StreamHandlers handlers) override;
  std::unique_ptr<WorkerCall> Reserve(const WorkerEndpoint& worker,
                                      const v1::ReserveRequest& request, const CallOptions& options,
                                      ReserveDone done) override;
  void Release(const WorkerEndpoint& worker, const v1::ReleaseRequest& request) override;
  void EndChoice(const WorkerEndpoint& worker, const v1::EndChoiceRequest& request) override;
  // Calls the standard gRPC health service, which every server of this project has.
  std::unique_ptr<WorkerCall> Ping(const WorkerEndpoint& worker,
                                   std::function<void(Health)> answered) override;
  void Disconnect(const WorkerId& id) override { channels_.erase(id); }
  void KeepOnly(const ClusterView& view) override;

 private:
  struct Channel {
    Channel(std::shared_ptr<grpc::Channel> opened, std::shared_ptr<const TlsMaterial> material)
        : material(std::move(material)), worker(opened), health(std::move(opened)) {}
    std::shared_ptr<const TlsMaterial> material;  // what it was opened with; null: without TLS
    v1::Worker::Stub worker;
    grpc::GenericStub health;
  };
  // A restarted worker gets a new channel, because the old one may be in a reconnect back-off. So
  // does every worker once the router's certificate has been replaced; calls in progress keep
  // theirs.
  Channel& ChannelTo(const WorkerEndpoint& worker);
  v1::Worker::Stub& StubFor(const WorkerEndpoint& worker) { return ChannelTo(worker).worker; }
  // Releases a reservation that was granted after the request had ended. Otherwise its blocks would
  // stay reserved until its lease lapses.
  void ReleaseUnused(const WorkerEndpoint& worker, const v1::KvTarget& target);

  const std::shared_ptr<EventLoop> loop_;
  const std::shared_ptr<TlsSource> tls_;
  std::map<WorkerId, std::unique_ptr<Channel>> channels_;
};

}  // namespace tandem
