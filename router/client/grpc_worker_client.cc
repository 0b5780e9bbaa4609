#include "router/client/grpc_worker_client.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/support/client_callback.h"
#include "router/client/retry_metadata.h"
#include "router/client/trace_metadata.h"
#include "security/grpc/channel_tls.h"

namespace tandem {
namespace {

std::chrono::system_clock::time_point ToSystemTime(TimePoint deadline) {
  const auto now = std::chrono::system_clock::now();
  const auto left = deadline - std::chrono::steady_clock::now();
  return now + std::chrono::duration_cast<std::chrono::system_clock::duration>(left);
}

void Apply(const CallOptions& options, grpc::ClientContext& context) {
  if (options.deadline != kNoDeadline) context.set_deadline(ToSystemTime(options.deadline));
  if (const auto trace = options.trace.context()) SendTraceContext(*trace, context);
}

CallEnd ToCallEnd(const grpc::Status& status, const grpc::ClientContext& context) {
  if (status.ok()) return {absl::OkStatus(), CallEnd::Source::kWorker};
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto origin = trailers.find(kOriginKey);
  const bool answered = origin != trailers.end() && origin->second == kOriginWorker;
  // gRPC and Abseil number their status codes alike (server/services/status_mapping.h).
  absl::Status ours(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
  TakeRetryAfter(context, ours);
  return {std::move(ours), answered ? CallEnd::Source::kWorker : CallEnd::Source::kNetwork};
}

// The state that a call and its handle share. `dropped_` and `handlers_` belong to the loop's
// thread; gRPC's threads only post to it.
class StreamCall final : public grpc::ClientReadReactor<v1::WorkerEvent>,
                         public std::enable_shared_from_this<StreamCall> {
 public:
  StreamCall(std::shared_ptr<EventLoop> loop, const CallOptions& options, StreamHandlers handlers)
      : loop_(std::move(loop)), handlers_(std::move(handlers)) {
    Apply(options, context_);
  }

  grpc::ClientContext& context() { return context_; }

  void Start() {
    self_ = shared_from_this();  // keeps the call alive until OnDone
    StartRead(&event_);
    StartCall();
  }

  void Drop() {
    dropped_ = true;
    context_.TryCancel();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    loop_->Post([self = shared_from_this(), event = std::exchange(event_, {})] {
      if (!self->dropped_) self->handlers_.on_event(event);
    });
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    loop_->Post([self = std::move(self_), end = ToCallEnd(status, context_)] {
      if (!self->dropped_) self->handlers_.on_end(end);
    });
  }

 private:
  const std::shared_ptr<EventLoop> loop_;
  const StreamHandlers handlers_;
  bool dropped_ = false;
  grpc::ClientContext context_;
  v1::WorkerEvent event_;
  std::shared_ptr<StreamCall> self_;
};

// A unary call and everything that must live until it is done.
template <typename Request, typename Response>
struct UnaryCall {
  grpc::ClientContext context;
  Request request;
  Response response;
  bool dropped = false;   // belongs to the loop's thread
  bool answered = false;  // belongs to the loop's thread
};

// A call whose answer is not used.
template <typename Request, typename Response>
std::shared_ptr<UnaryCall<Request, Response>> NewUnansweredCall(const Request& request) {
  constexpr std::chrono::seconds kTimeout(5);
  auto call = std::make_shared<UnaryCall<Request, Response>>();
  call->request = request;
  call->context.set_deadline(std::chrono::system_clock::now() + kTimeout);
  return call;
}

template <typename Call, void (*drop)(Call&)>
class Handle final : public WorkerCall {
 public:
  explicit Handle(std::shared_ptr<Call> call) : call_(std::move(call)) {}
  ~Handle() override { drop(*call_); }

 private:
  const std::shared_ptr<Call> call_;
};

void DropStream(StreamCall& call) { call.Drop(); }
using StreamHandle = Handle<StreamCall, DropStream>;

template <typename Call>
void DropUnary(Call& call) {
  call.dropped = true;
  call.context.TryCancel();
}
using ReserveCall = UnaryCall<v1::ReserveRequest, v1::ReserveResponse>;
// Drops a call that reserves blocks. A worker that must not queue the request answers soon: its
// answer is awaited, so that what it has reserved can be released by its id. A worker that queues
// it may grant the blocks at the moment in which the call is cancelled, and that answer is lost:
// then the reservation is released by the request's id.
class ReserveHandle final : public WorkerCall {
 public:
  ReserveHandle(GrpcWorkerClient& client, WorkerEndpoint worker, std::shared_ptr<ReserveCall> call)
      : client_(client), worker_(std::move(worker)), call_(std::move(call)) {}
  ~ReserveHandle() override {
    call_->dropped = true;
    if (call_->answered || call_->request.at_once()) return;
    call_->context.TryCancel();
    v1::ReleaseRequest release;
    release.set_request_id(call_->request.request_id());
    release.set_epoch(call_->request.epoch());
    client_.Release(worker_, release);
  }

 private:
  GrpcWorkerClient& client_;
  const WorkerEndpoint worker_;
  const std::shared_ptr<ReserveCall> call_;
};
using PingCall = UnaryCall<grpc::ByteBuffer, grpc::ByteBuffer>;
using PingHandle = Handle<PingCall, DropUnary<PingCall>>;

// Whether the worker itself answered, and not the network in its place or a call that was dropped.
bool IsAnswer(const grpc::Status& status) {
  return status.error_code() != grpc::StatusCode::UNAVAILABLE &&
         status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED &&
         status.error_code() != grpc::StatusCode::CANCELLED;
}

// Reads a grpc.health.v1.HealthCheckResponse, whose one field is the status.
Health HealthIn(const grpc::ByteBuffer& response) {
  constexpr std::string_view kServing("\x08\x01", 2);  // status: SERVING
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!response.Dump(&slices).ok()) return Health::kNotServing;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes == kServing ? Health::kServing : Health::kNotServing;
}

std::shared_ptr<grpc::Channel> OpenChannel(const WorkerEndpoint& worker,
                                           const TlsMaterial* material) {
  constexpr int kMaxMessageBytes = 64 << 20;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2000);
  // Despite its name, this is the time that an attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  // A host that vanished is noticed within the sum of the keepalive time and timeout, also during a
  // long prefill that sends nothing, unless its lease or a ping (router/client/pings.h) has shown
  // it before.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 10000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 5000);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return grpc::CreateCustomChannel(
      worker.address,
      NewChannelCredentials(material, {.roles = {IdentityRole::kWorker}, .name = worker.id.name}),
      arguments);
}

}  // namespace

GrpcWorkerClient::Channel& GrpcWorkerClient::ChannelTo(const WorkerEndpoint& worker) {
  std::unique_ptr<Channel>& channel = channels_[worker.id];
  std::shared_ptr<const TlsMaterial> material = CurrentOf(tls_);
  if (channel == nullptr || channel->material != material) {
    channel = std::make_unique<Channel>(OpenChannel(worker, material.get()), std::move(material));
  }
  return *channel;
}

std::unique_ptr<WorkerCall> GrpcWorkerClient::Generate(const WorkerEndpoint& worker,
                                                       const v1::GenerateOnWorkerRequest& request,
                                                       const CallOptions& options,
                                                       StreamHandlers handlers) {
  auto call = std::make_shared<StreamCall>(loop_, options, std::move(handlers));
  StubFor(worker).async()->Generate(&call->context(), &request, call.get());
  call->Start();
  return std::make_unique<StreamHandle>(std::move(call));
}

std::unique_ptr<WorkerCall> GrpcWorkerClient::Prefill(const WorkerEndpoint& worker,
                                                      const v1::PrefillRequest& request,
                                                      const CallOptions& options,
                                                      StreamHandlers handlers) {
  auto call = std::make_shared<StreamCall>(loop_, options, std::move(handlers));
  StubFor(worker).async()->Prefill(&call->context(), &request, call.get());
  call->Start();
  return std::make_unique<StreamHandle>(std::move(call));
}

std::unique_ptr<WorkerCall> GrpcWorkerClient::Decode(const WorkerEndpoint& worker,
                                                     const v1::DecodeRequest& request,
                                                     const CallOptions& options,
                                                     StreamHandlers handlers) {
  auto call = std::make_shared<StreamCall>(loop_, options, std::move(handlers));
  StubFor(worker).async()->Decode(&call->context(), &request, call.get());
  call->Start();
  return std::make_unique<StreamHandle>(std::move(call));
}

std::unique_ptr<WorkerCall> GrpcWorkerClient::Reserve(const WorkerEndpoint& worker,
                                                      const v1::ReserveRequest& request,
                                                      const CallOptions& options,
                                                      ReserveDone done) {
  auto call = std::make_shared<ReserveCall>();
  call->request = request;
  Apply(options, call->context);
  StubFor(worker).async()->Reserve(
      &call->context, &call->request, &call->response,
      [this, loop = loop_, worker, call, done = std::move(done)](const grpc::Status& status) {
        loop->Post([this, worker, call, done, end = ToCallEnd(status, call->context)] {
          if (!call->dropped) {
            call->answered = true;
            done(end, call->response);
          } else if (end.status.ok()) {
            ReleaseUnused(worker, call->response.target());
          }
        });
      });
  return std::make_unique<ReserveHandle>(*this, worker, std::move(call));
}

// A worker without a channel is gone, and its reservations with it.
void GrpcWorkerClient::Release(const WorkerEndpoint& worker, const v1::ReleaseRequest& request) {
  const auto found = channels_.find(worker.id);
  if (found == channels_.end()) return;
  auto call = NewUnansweredCall<v1::ReleaseRequest, v1::ReleaseResponse>(request);
  found->second->worker.async()->Release(&call->context, &call->request, &call->response,
                                         [call](const grpc::Status&) {});
}

void GrpcWorkerClient::EndChoice(const WorkerEndpoint& worker,
                                 const v1::EndChoiceRequest& request) {
  const auto found = channels_.find(worker.id);
  if (found == channels_.end()) return;
  auto call = NewUnansweredCall<v1::EndChoiceRequest, v1::EndChoiceResponse>(request);
  found->second->worker.async()->EndChoice(&call->context, &call->request, &call->response,
                                           [call](const grpc::Status&) {});
}

void GrpcWorkerClient::ReleaseUnused(const WorkerEndpoint& worker, const v1::KvTarget& target) {
  v1::ReleaseRequest request;
  request.set_reservation_id(target.reservation_id());
  request.set_epoch(target.epoch());
  Release(worker, request);
}

std::unique_ptr<WorkerCall> GrpcWorkerClient::Ping(const WorkerEndpoint& worker,
                                                   std::function<void(Health)> answered) {
  auto call = std::make_shared<PingCall>();
  const grpc::Slice no_field;
  call->request = grpc::ByteBuffer(&no_field, 1);
  ChannelTo(worker).health.UnaryCall(
      &call->context, "/grpc.health.v1.Health/Check", {}, &call->request, &call->response,
      [loop = loop_, call, answered = std::move(answered)](const grpc::Status& status) {
        if (!IsAnswer(status)) return;
        const Health health = status.ok() ? HealthIn(call->response) : Health::kNotServing;
        loop->Post([call, answered, health] {
          if (!call->dropped) answered(health);
        });
      });
  return std::make_unique<PingHandle>(std::move(call));
}

void GrpcWorkerClient::KeepOnly(const ClusterView& view) {
  std::erase_if(channels_, [&view](const auto& entry) {
    return !std::ranges::binary_search(view.workers, entry.first, {}, &WorkerView::id);
  });
}

}  // namespace tandem
