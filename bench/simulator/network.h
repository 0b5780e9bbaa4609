#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "bench/simulator/calls.h"
#include "bench/simulator/digest.h"
#include "bench/simulator/timeline.h"
#include "bench/simulator/worker.h"
#include "router/client/worker_client.h"

namespace tandem::simulator {

struct NetworkOptions {
  Duration hop = std::chrono::microseconds(100);  // of a message from one process to another
  TokenEvents token_events = TokenEvents::kEach;
};

// What a router sees of simulated workers: the calls that GrpcWorkerClient makes over gRPC, with a
// constant time for each message.
// Thread: one at a time, which is the router's loop, too.
class SimulatedNetwork final : public WorkerClient {
 public:
  SimulatedNetwork(const NetworkOptions& options, Timeline& timeline, Digest& digest);

  // `worker` outlives the network.
  void Add(SimulatedWorker& worker) { workers_.emplace(worker.config().name, &worker); }
  // The process of the worker is gone: calls to it end with UNAVAILABLE.
  void Lose(SimulatedWorker& worker);
  // `ended` is called when a call to this worker has ended: workers report their load soon after.
  void SetEndListener(std::function<void(SimulatedWorker&)> ended) { ended_ = std::move(ended); }
  // While handlers are called for tokens: when each of these has arrived.
  std::span<const TimePoint> arrivals() const { return arrivals_; }
  // Runs `task` on the other side after a hop.
  void Deliver(std::function<void()> task);

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
  // Requests of a simulation have one choice, which ends by itself.
  void EndChoice(const WorkerEndpoint&, const v1::EndChoiceRequest&) override {}
  std::unique_ptr<WorkerCall> Ping(const WorkerEndpoint& worker,
                                   std::function<void(Health)> answered) override;
  void Disconnect(const WorkerId&) override {}
  void KeepOnly(const ClusterView&) override {}

 private:
  class StreamHandle;
  struct Reserving;
  class ReserveHandle;
  struct Delivery {
    TimePoint at;
    std::function<void()> run;
  };
  struct OpenStream {
    SimulatedWorker* worker;
    std::weak_ptr<SimulatedStream> stream;
  };
  using Begin = std::function<void(SimulatedWorker&, OutputStream)>;

  SimulatedWorker& Get(const WorkerEndpoint& worker) const { return *workers_.at(worker.id.name); }
  std::unique_ptr<WorkerCall> Open(std::string_view kind, const WorkerEndpoint& endpoint,
                                   uint64_t request, StreamHandlers handlers, Begin begin);
  // Runs `task` at the worker after a hop, unless the worker is gone by then.
  void Send(SimulatedWorker& worker, std::function<void(SimulatedWorker&)> task);
  void RunDeliveries();
  void AddToDigest(std::string_view kind, const WorkerEndpoint& worker, uint64_t request);

  const NetworkOptions options_;
  Timeline& timeline_;
  Digest& digest_;
  std::map<std::string, SimulatedWorker*> workers_;
  std::function<void(SimulatedWorker&)> ended_;
  StreamSink::Parts sink_parts_;
  std::deque<Delivery> deliveries_;  // by time
  std::span<const TimePoint> arrivals_;
  // The open calls by number, so that their order depends on no address.
  std::map<uint64_t, OpenStream> streams_;
  std::map<uint64_t, std::weak_ptr<Reserving>> reserving_;
  uint64_t next_number_ = 1;
};

}  // namespace tandem::simulator
