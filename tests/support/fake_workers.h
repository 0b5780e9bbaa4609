#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "router/client/worker_client.h"

namespace tandem {

// Workers that do nothing by themselves: the test plays them. A call is named "prefill p0".
class FakeWorkers final : public WorkerClient {
 public:
  struct Stream {
    std::string name;
    v1::SequenceRequest sequence;
    StreamHandlers handlers;
    uint64_t epoch = 0;  // the incarnation of the worker that is called
    std::optional<TraceContext> trace = std::nullopt;
    bool open = true;
  };
  struct Reservation {
    std::string name;
    v1::ReserveRequest request;
    ReserveDone done;
    std::optional<TraceContext> trace = std::nullopt;
    bool open = true;
  };

  struct Sign {
    std::string name;
    bool open = true;
  };

  std::unique_ptr<WorkerCall> Generate(const WorkerEndpoint& worker,
                                       const v1::GenerateOnWorkerRequest& request,
                                       const CallOptions& options,
                                       StreamHandlers handlers) override {
    so_far = {request.so_far().begin(), request.so_far().end()};
    return Open("generate " + worker.id.name, request, options, std::move(handlers));
  }
  std::unique_ptr<WorkerCall> Prefill(const WorkerEndpoint& worker,
                                      const v1::PrefillRequest& request, const CallOptions& options,
                                      StreamHandlers handlers) override {
    target = request.target();
    return Open("prefill " + worker.id.name, request, options, std::move(handlers));
  }
  std::unique_ptr<WorkerCall> Decode(const WorkerEndpoint& worker, const v1::DecodeRequest& request,
                                     const CallOptions& options, StreamHandlers handlers) override {
    so_far = {request.so_far().begin(), request.so_far().end()};
    first_tokens = {request.first_tokens().begin(), request.first_tokens().end()};
    return Open("decode " + worker.id.name, request, options, std::move(handlers));
  }
  std::unique_ptr<WorkerCall> Reserve(const WorkerEndpoint& worker,
                                      const v1::ReserveRequest& request, const CallOptions& options,
                                      ReserveDone done) override {
    auto call = std::make_shared<Reservation>(Reservation{.name = "reserve " + worker.id.name,
                                                          .request = request,
                                                          .done = std::move(done),
                                                          .trace = options.trace.context()});
    reservations.push_back(call);
    return std::make_unique<Handle<Reservation>>(call);
  }
  void Release(const WorkerEndpoint& worker, const v1::ReleaseRequest& request) override {
    released.push_back(worker.id.name + "#" + std::to_string(request.reservation_id()));
  }
  void EndChoice(const WorkerEndpoint& worker, const v1::EndChoiceRequest& request) override {
    ended_choices.push_back(worker.id.name + "#" + std::to_string(request.index()));
  }
  std::unique_ptr<WorkerCall> Ping(const WorkerEndpoint& worker,
                                   std::function<void(Health)> answered) override {
    auto call = std::make_shared<Sign>(Sign{.name = worker.id.name});
    pings.push_back(call);
    const bool serves = !not_serving.contains(worker.id.name);
    if (!silent.contains(worker.id.name)) answered(serves ? Health::kServing : Health::kNotServing);
    return std::make_unique<Handle<Sign>>(call);
  }
  void Disconnect(const WorkerId& id) override { disconnected.push_back(id.name); }
  void KeepOnly(const ClusterView&) override {}

  // The open call of this name, or null.
  std::shared_ptr<Stream> Find(const std::string& name) const {
    for (const auto& stream : streams) {
      if (stream->open && stream->name == name) return stream;
    }
    return nullptr;
  }
  // The names of all open calls.
  std::vector<std::string> Open() const {
    std::vector<std::string> names;
    for (const auto& call : reservations) {
      if (call->open) names.push_back(call->name);
    }
    for (const auto& stream : streams) {
      if (stream->open) names.push_back(stream->name);
    }
    return names;
  }

  std::vector<std::shared_ptr<Stream>> streams;
  std::vector<std::shared_ptr<Reservation>> reservations;
  std::vector<std::shared_ptr<Sign>> pings;
  std::set<std::string> silent;       // they answer no ping
  std::set<std::string> not_serving;  // they answer pings, and that they do not serve
  std::vector<std::string> disconnected;
  std::vector<std::string> released;
  std::vector<std::string> ended_choices;
  v1::KvTarget target;                          // of the last Prefill
  std::vector<v1::TokenLogprobs> first_tokens;  // of the last Decode
  std::vector<v1::OutputSoFar> so_far;          // of the last Generate or Decode

 private:
  template <typename Call>
  class Handle final : public WorkerCall {
   public:
    explicit Handle(std::shared_ptr<Call> call) : call_(std::move(call)) {}
    ~Handle() override { call_->open = false; }

   private:
    const std::shared_ptr<Call> call_;
  };

  template <typename Request>
  std::unique_ptr<WorkerCall> Open(std::string name, const Request& request,
                                   const CallOptions& options, StreamHandlers handlers) {
    auto call = std::make_shared<Stream>(Stream{.name = std::move(name),
                                                .sequence = request.sequence(),
                                                .handlers = std::move(handlers),
                                                .epoch = request.epoch(),
                                                .trace = options.trace.context()});
    streams.push_back(call);
    return std::make_unique<Handle<Stream>>(call);
  }
};

}  // namespace tandem
