#include "bench/simulator/network.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "server/services/worker_messages.h"

namespace tandem::simulator {
namespace {

class NoCall final : public WorkerCall {};

CallEnd Lost() {
  return {Unavailable("the connection to the worker was lost"), CallEnd::Source::kNetwork};
}

uint64_t HashOf(std::string_view text) {
  return Hash64(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

// The router's end of a streaming call. Dropping it before the end cancels the request.
class SimulatedNetwork::StreamHandle final : public WorkerCall {
 public:
  StreamHandle(SimulatedNetwork& network, SimulatedWorker& worker, RequestId request,
               uint64_t number, std::shared_ptr<SimulatedStream> stream)
      : network_(network),
        worker_(worker),
        request_(request),
        number_(number),
        stream_(std::move(stream)) {}
  ~StreamHandle() override {
    network_.streams_.erase(number_);
    if (stream_->closed()) return;
    stream_->Close();
    network_.Send(worker_, [request = request_](SimulatedWorker& worker) {
      worker.Cancel(request, Cancelled("the router cancelled the call"));
    });
  }

 private:
  SimulatedNetwork& network_;
  SimulatedWorker& worker_;
  const RequestId request_;
  const uint64_t number_;
  const std::shared_ptr<SimulatedStream> stream_;
};

// A call of Reserve that was not answered yet.
struct SimulatedNetwork::Reserving {
  SimulatedWorker& worker;
  ReserveDone done;
  std::optional<ReserveTicket> ticket;  // once the worker has the call
  bool closed = false;                  // answered, or dropped
};

class SimulatedNetwork::ReserveHandle final : public WorkerCall {
 public:
  ReserveHandle(SimulatedNetwork& network, uint64_t number, std::shared_ptr<Reserving> call)
      : network_(network), number_(number), call_(std::move(call)) {}
  ~ReserveHandle() override {
    network_.reserving_.erase(number_);
    if (std::exchange(call_->closed, true)) return;
    network_.Send(call_->worker, [call = call_](SimulatedWorker& worker) {
      if (call->ticket) worker.CancelReserve(*call->ticket);
    });
  }

 private:
  SimulatedNetwork& network_;
  const uint64_t number_;
  const std::shared_ptr<Reserving> call_;
};

SimulatedNetwork::SimulatedNetwork(const NetworkOptions& options, Timeline& timeline,
                                   Digest& digest)
    : options_(options),
      timeline_(timeline),
      digest_(digest),
      sink_parts_{
          .timeline = timeline,
          .hop = options.hop,
          .token_events = options.token_events,
          .deliver_tokens =
              [this](const std::shared_ptr<SimulatedStream>& stream) {
                Deliver([this, stream] { stream->SendTokens(timeline_.Now(), arrivals_); });
              },
          .deliver_end =
              [this](const std::shared_ptr<SimulatedStream>& stream, const FinishInfo& info) {
                Deliver([this, stream, info] {
                  stream->SendTokens(timeline_.Now(), arrivals_);
                  stream->SendEnd(info);
                });
              }} {}

void SimulatedNetwork::Deliver(std::function<void()> task) {
  const TimePoint at = timeline_.Now() + options_.hop;
  const bool is_new_time = deliveries_.empty() || deliveries_.back().at != at;
  deliveries_.push_back({at, std::move(task)});
  if (is_new_time) timeline_.At(at, [this] { RunDeliveries(); });
}

void SimulatedNetwork::RunDeliveries() {
  while (!deliveries_.empty() && deliveries_.front().at <= timeline_.Now()) {
    const std::function<void()> run = std::move(deliveries_.front().run);
    deliveries_.pop_front();
    run();
  }
}

void SimulatedNetwork::Send(SimulatedWorker& worker, std::function<void(SimulatedWorker&)> task) {
  timeline_.After(options_.hop, [&worker, task = std::move(task)] {
    if (!worker.dead()) task(worker);
  });
}

void SimulatedNetwork::AddToDigest(std::string_view kind, const WorkerEndpoint& worker,
                                   uint64_t request) {
  digest_.Add(Happening::kCall, {HashOf(kind), HashOf(worker.id.name), request,
                                 static_cast<uint64_t>(timeline_.elapsed().count())});
}

std::unique_ptr<WorkerCall> SimulatedNetwork::Open(std::string_view kind,
                                                   const WorkerEndpoint& endpoint, uint64_t request,
                                                   StreamHandlers handlers, Begin begin) {
  AddToDigest(kind, endpoint, request);
  SimulatedWorker& worker = Get(endpoint);
  auto stream = std::make_shared<SimulatedStream>(std::move(handlers));
  const uint64_t number = next_number_++;
  streams_.emplace(number, OpenStream{&worker, stream});
  if (worker.dead()) {
    Deliver([stream] { stream->SendLoss(Lost()); });
  } else {
    OutputStream output(std::make_unique<StreamSink>(sink_parts_, stream, [this, &worker] {
      if (ended_) ended_(worker);
    }));
    auto held = std::make_shared<OutputStream>(std::move(output));
    Send(worker, [held, begin = std::move(begin)](SimulatedWorker& there) {
      begin(there, std::move(*held));
    });
  }
  return std::make_unique<StreamHandle>(*this, worker, RequestId(request), number, stream);
}

std::unique_ptr<WorkerCall> SimulatedNetwork::Generate(const WorkerEndpoint& worker,
                                                       const v1::GenerateOnWorkerRequest& request,
                                                       const CallOptions& options,
                                                       StreamHandlers handlers) {
  auto made = std::make_shared<EngineRequest>(ToEngineRequest(request, options.deadline));
  return Open("generate", worker, request.sequence().request_id(), std::move(handlers),
              [made](SimulatedWorker& there, OutputStream output) {
                there.Submit(std::move(*made), std::nullopt, std::move(output));
              });
}

std::unique_ptr<WorkerCall> SimulatedNetwork::Prefill(const WorkerEndpoint& worker,
                                                      const v1::PrefillRequest& request,
                                                      const CallOptions& options,
                                                      StreamHandlers handlers) {
  auto made =
      std::make_shared<EngineRequest>(ToEngineRequest(request.sequence(), options.deadline));
  return Open(
      "prefill", worker, request.sequence().request_id(), std::move(handlers),
      [made, target = ToHandoffTarget(request)](SimulatedWorker& there, OutputStream output) {
        if (!target.ok()) return output.Fail(target.status());
        there.Submit(std::move(*made), *target, std::move(output));
      });
}

std::unique_ptr<WorkerCall> SimulatedNetwork::Decode(const WorkerEndpoint& worker,
                                                     const v1::DecodeRequest& request,
                                                     const CallOptions& options,
                                                     StreamHandlers handlers) {
  auto made = std::make_shared<DecodeRequest>(ToDecodeRequest(request, options.deadline));
  return Open("decode", worker, request.sequence().request_id(), std::move(handlers),
              [made](SimulatedWorker& there, OutputStream output) {
                there.Decode(std::move(*made), std::move(output));
              });
}

std::unique_ptr<WorkerCall> SimulatedNetwork::Reserve(const WorkerEndpoint& endpoint,
                                                      const v1::ReserveRequest& request,
                                                      const CallOptions& options,
                                                      ReserveDone done) {
  AddToDigest("reserve", endpoint, request.request_id());
  SimulatedWorker& worker = Get(endpoint);
  auto call = std::make_shared<Reserving>(Reserving{.worker = worker, .done = std::move(done)});
  const uint64_t number = next_number_++;
  reserving_.emplace(number, call);
  const auto answer = [this, call](const CallEnd& end, const v1::ReserveResponse& response) {
    Deliver([this, call, end, response] {
      if (!std::exchange(call->closed, true)) return call->done(end, response);
      const ReservationId id(response.target().reservation_id());
      if (end.status.ok()) {
        Send(call->worker, [id](SimulatedWorker& there) { there.Release(id); });
      }
    });
  };
  if (worker.dead()) {
    answer(Lost(), {});
  } else {
    Send(worker, [call, answer,
                  wanted = ToReserveRequest(request, options.deadline)](SimulatedWorker& there) {
      if (call->closed) return;
      if (!wanted.ok()) return answer({wanted.status()}, {});
      call->ticket = there.Reserve(*wanted, [&there, answer](absl::StatusOr<Reservation> made) {
        if (!made.ok()) return answer({made.status()}, {});
        answer({absl::OkStatus()}, ToProto(*made, there.data_address()));
      });
    });
  }
  return std::make_unique<ReserveHandle>(*this, number, call);
}

void SimulatedNetwork::Release(const WorkerEndpoint& endpoint, const v1::ReleaseRequest& request) {
  AddToDigest("release", endpoint, request.request_id());
  const ReservationId id(request.reservation_id());
  const RequestId of(request.request_id());
  Send(Get(endpoint), [this, id, of](SimulatedWorker& there) {
    if (id != ReservationId()) {
      there.Release(id);
    } else {
      there.ReleaseOf(of);
    }
    if (ended_) ended_(there);
  });
}

std::unique_ptr<WorkerCall> SimulatedNetwork::Ping(const WorkerEndpoint& worker,
                                                   std::function<void(Health)> answered) {
  if (!Get(worker).dead()) answered(Health::kServing);
  return std::make_unique<NoCall>();
}

void SimulatedNetwork::Lose(SimulatedWorker& worker) {
  worker.Kill();
  for (const auto& [number, open] : streams_) {
    if (open.worker != &worker) continue;
    Deliver([this, stream = open.stream] {
      const std::shared_ptr<SimulatedStream> lost = stream.lock();
      if (lost == nullptr) return;
      lost->SendTokens(timeline_.Now(), arrivals_);
      lost->SendLoss(Lost());
    });
  }
  for (const auto& [number, weak] : reserving_) {
    const std::shared_ptr<Reserving> call = weak.lock();
    if (call == nullptr || &call->worker != &worker) continue;
    Deliver([call] {
      if (!std::exchange(call->closed, true)) call->done(Lost(), {});
    });
  }
}

}  // namespace tandem::simulator
