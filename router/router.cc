#include "router/router.h"

#include <algorithm>
#include <utility>

#include "base/retry_after.h"
#include "base/rng.h"
#include "base/status.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

uint64_t RandomBits(uint64_t seed, uint64_t counter) {
  const auto bits = Philox4x32(seed, counter, 0);
  return (uint64_t{bits[1]} << 32) | bits[0];
}

// Requests end all the time; when the next one does is not known.
absl::Status Busy(absl::Status status) {
  SetRetryAfter(status, std::chrono::milliseconds(500));
  return status;
}

absl::Status ShuttingDown() { return Unavailable("the router is shutting down: retry elsewhere"); }

}  // namespace

Router::Router(RouterOptions options, const RouterParts& parts)
    : options_(std::move(options)), parts_(parts), pings_(parts.workers) {
  // Ids of several routers meet at the workers: each starts at a random place.
  next_id_ = RandomBits(options_.random_seed, 0);
}

Router::~Router() { parts_.cluster.SetListener(nullptr); }

void Router::Start() {
  parts_.loop.Post([this] {
    const TimePoint now = parts_.clock.Now();
    WatchLeases(now);
    WatchConnections(now);
  });
  parts_.cluster.SetListener([this] {
    if (!has_news_.exchange(true)) parts_.loop.Post([this] { OnClusterChanged(); });
  });
}

absl::StatusOr<RequestId> Router::Submit(const v1::GenerateRequest& request, TimePoint deadline,
                                         ResponseStream& stream) {
  const TimePoint received = parts_.clock.Now();
  if (draining_) return ShuttingDown();
  ASSIGN_OR_RETURN(RequestSpec spec, Resolve(request, received, deadline));
  const int32_t width = spec.width();
  RETURN_IF_ERROR(Admit(width));
  const RequestId id(spec.sequence.request_id());
  auto shared = std::make_shared<RequestSpec>(std::move(spec));
  const bool taken =
      parts_.loop.TryPost([this, id, shared, &stream] { Begin(id, std::move(*shared), stream); });
  if (!taken) {
    in_flight_ -= width;
    return Busy(ResourceExhausted("the router's queue is full: retry later"));
  }
  ++total_;
  return id;
}

absl::Status Router::Admit(int32_t width) {
  if (in_flight_.fetch_add(width) + width <= options_.max_in_flight) return absl::OkStatus();
  in_flight_ -= width;
  return Busy(
      ResourceExhausted("{} more choices would exceed the {} that may be in flight: retry later",
                        width, options_.max_in_flight));
}

RequestLimits Router::CurrentLimits() const {
  RequestLimits limits = options_.limits;
  const int32_t served = parts_.cluster.View()->MaxContextTokens();
  if (served > 0) limits.max_context_tokens = std::min(limits.max_context_tokens, served);
  return limits;
}

absl::StatusOr<RequestSpec> Router::Resolve(const v1::GenerateRequest& request, TimePoint received,
                                            TimePoint deadline) {
  const RequestLimits limits = CurrentLimits();
  RETURN_IF_ERROR(ValidateRequest(request, limits));
  const uint64_t id = next_id_.fetch_add(1);
  RequestSpec spec{
      .id = request.request_id().empty() ? fmt::format("{:016x}", id) : request.request_id(),
      .model = limits.model,
      .sequence = {},
      .stop_strings = {request.stop().begin(), request.stop().end()},
      .n = request.has_n() ? request.n() : 1,
      .logprobs = request.sampling().has_logprobs() ? RequestSpec::Logprobs::kWanted
                                                    : RequestSpec::Logprobs::kUnwanted,
      .wanted = request.route(),
      .received = received,
      .deadline = std::min(deadline, received + options_.max_request_time)};
  v1::SequenceRequest& sequence = spec.sequence;
  if (request.has_text()) {
    ASSIGN_OR_RETURN(const auto ids, parts_.tokenizer->Encode(request.text(), {}));
    sequence.mutable_prompt()->Add(ids.begin(), ids.end());
  } else {
    *sequence.mutable_prompt() = request.token_ids().ids();
  }
  ASSIGN_OR_RETURN(const int32_t max_tokens,
                   ResolveMaxTokens(request, sequence.prompt_size(), limits));
  const auto stops = ResolveStopTokens(request, limits);
  sequence.set_request_id(id);
  *sequence.mutable_sampling() =
      ResolveSampling(request.sampling(), RandomBits(options_.random_seed, ~id));
  sequence.set_max_tokens(max_tokens);
  sequence.mutable_stop_token_ids()->Add(stops.begin(), stops.end());
  sequence.set_priority(request.priority());
  sequence.set_n(ResolveChoices(request));
  sequence.set_tenant(request.tenant());
  sequence.set_cache_salt(request.cache_salt());
  if (request.has_beam_search()) *sequence.mutable_beam_search() = ResolveBeams(request);
  // Ranking needs them, whether the client does or not.
  if (spec.ranked() && !sequence.sampling().has_logprobs()) {
    sequence.mutable_sampling()->set_logprobs(0);
  }
  return spec;
}

void Router::Begin(RequestId id, RequestSpec spec, ResponseStream& stream) {
  const int32_t width = spec.width();
  if (draining_) {  // since it was looked at: whoever drains may have counted already
    in_flight_ -= width;
    return stream.End(ShuttingDown());
  }
  auto request = std::make_unique<Request>(parts_, std::move(spec), stream, [this, id, width] {
    in_flight_ -= width;
    parts_.loop.Post([this, id] { Forget(id); });
  });
  Request& started = *request;
  requests_.emplace(id, std::move(request));
  started.Start();
}

void Router::Cancel(RequestId id, const absl::Status& status) {
  parts_.loop.Post([this, id, status] {
    const auto found = requests_.find(id);
    if (found != requests_.end()) found->second->Cancel(status);
  });
}

void Router::Drain(TimePoint deadline, std::function<void()> drained) {
  draining_ = true;
  parts_.loop.Post([this, deadline, drained = std::move(drained)] {
    if (requests_.empty()) {
      drained();
      return;
    }
    drained_ = drained;
    parts_.loop.PostAt(deadline, [this] {
      for (auto& [id, request] : requests_) {
        request->Cancel(ShuttingDown());
      }
    });
  });
}

void Router::Forget(RequestId id) {
  requests_.erase(id);
  if (requests_.empty() && drained_) std::exchange(drained_, nullptr)();
}

void Router::WatchLeases(TimePoint due) {
  const Duration turn = parts_.cluster.options().lease / 4;
  const TimePoint now = parts_.clock.Now();
  // It was stopped, or its machine was: the heartbeats of that time wait unread.
  if (now - due > turn) {
    spdlog::warn("this router stood still for {} ms: leases last longer by as much",
                 std::chrono::duration_cast<std::chrono::milliseconds>(now - due).count());
    parts_.cluster.Postpone(now - due);
  }
  Lose(parts_.cluster.Expire(), CallEnd::Source::kLease, "its lease lapsed");
  parts_.workers.KeepOnly(*parts_.cluster.View());
  const TimePoint next = std::min(parts_.cluster.NextExpiry(), now + turn);
  parts_.loop.PostAt(next, [this, next] { WatchLeases(next); });
}

// Three turns per lease: a connection that is cut is noticed no later than a process that is
// killed.
void Router::WatchConnections(TimePoint due) {
  const Duration turn = parts_.cluster.options().lease / 3;
  const TimePoint now = parts_.clock.Now();
  const Pings::Pace pace = now - due > turn ? Pings::Pace::kLate : Pings::Pace::kOnTime;
  const Pings::Changes changes = pings_.Turn(*parts_.cluster.View(), now, pace);
  for (const WorkerId& id : changes.reachable) {
    spdlog::info("worker={} incarnation={} answers again", id.name, id.incarnation);
    parts_.cluster.SetReach(id, Cluster::Reach::kRegained);
  }
  for (const WorkerId& id : changes.unreachable) {
    parts_.cluster.SetReach(id, Cluster::Reach::kLost);
  }
  Lose(changes.unreachable, CallEnd::Source::kNetwork, "it does not answer, though it is heard of");
  parts_.loop.PostAt(now + turn, [this, next = now + turn] { WatchConnections(next); });
}

// Workers that are not heard of any more, or not under their name, or that do not answer.
void Router::Lose(const std::vector<WorkerId>& lost, CallEnd::Source source, const char* why) {
  if (lost.empty()) return;
  for (const WorkerId& id : lost) {
    spdlog::warn("worker={} incarnation={} lost why=\"{}\"", id.name, id.incarnation, why);
  }
  const CallEnd end{Unavailable("{}", why), source};
  for (auto& [id, request] : requests_) request->OnWorkersLost(lost, end);
}

void Router::OnClusterChanged() {
  has_news_ = false;
  // Their connections may stand, and no lease of theirs will lapse: now or never.
  Lose(parts_.cluster.TakeReplaced(), CallEnd::Source::kLease,
       "another process has taken its name");
  std::vector<WorkerId> stuck;
  std::vector<WorkerId> leaving;
  const std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  for (const WorkerView& worker : view->workers) {
    if (!worker.load.not_ready().empty()) stuck.push_back(worker.id);
    if (worker.leaving) leaving.push_back(worker.id);
  }
  const CallEnd end{Unavailable("it makes no progress"), CallEnd::Source::kStuck};
  for (auto& [id, request] : requests_) {
    if (!stuck.empty()) request->OnWorkersLost(stuck, end);
    if (!leaving.empty()) request->OnWorkersLeaving(leaving);
    request->OnClusterChanged();
  }
}

absl::StatusOr<std::vector<int32_t>> Router::Tokenize(const v1::TokenizeRequest& request) const {
  if (parts_.tokenizer == nullptr) {
    return FailedPrecondition("model {} has no tokenizer.json here", options_.limits.model);
  }
  return parts_.tokenizer->Encode(
      request.text(), {.add_template = request.omit_template() ? Template::kOmit : Template::kAdd});
}

v1::GetStatusResponse Router::Status() const {
  const auto view = parts_.cluster.View();
  v1::GetStatusResponse response;
  for (const v1::Route route : view->Routes()) response.add_routes(route);
  response.set_ready(response.routes_size() > 0 && !draining_);
  response.set_model(options_.limits.model);
  response.set_version(options_.version);
  response.set_max_context_tokens(CurrentLimits().max_context_tokens);
  response.set_requests_in_flight(in_flight_);
  response.set_requests_total(total_);
  *response.mutable_resumes() = parts_.resumes.Use();
  *response.mutable_reroutes() = parts_.reroutes.Use();
  const TimePoint now = parts_.clock.Now();
  for (const WorkerView& worker : view->workers) {
    if (worker.name_taken) continue;  // names are unique here
    v1::WorkerStatus& status = *response.add_workers();
    status.set_name(worker.id.name);
    status.set_role(std::string(Name(worker.role)));
    status.set_address(worker.address);
    status.set_alive(!worker.suspected);
    status.set_running(worker.load.running());
    status.set_waiting(worker.load.waiting());
    status.set_total_blocks(worker.load.total_blocks());
    status.set_free_blocks(worker.load.free_blocks());
    status.set_requests_finished(worker.load.requests_finished());
    status.set_prompt_tokens(worker.load.prompt_tokens());
    status.set_output_tokens(worker.load.output_tokens());
    status.set_kv_bytes_sent(worker.load.kv_bytes_sent());
    status.set_kv_bytes_received(worker.load.kv_bytes_received());
    status.set_heartbeat_age_ms(ToMilliseconds(now - worker.last_heard));
    status.set_pid(worker.pid);
    status.set_not_ready(worker.unreachable
                             ? fmt::format("does not answer the router at {}", worker.address)
                             : worker.load.not_ready());
    status.set_starting(worker.load.starting());
    status.set_device(worker.device);
    *status.mutable_kv() = worker.load.kv();
    *status.mutable_handoffs() = worker.load.handoffs();
    *status.mutable_links() = worker.load.links();
  }
  return response;
}

}  // namespace tandem
