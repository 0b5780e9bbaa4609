#include "router/router.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/retry_after.h"
#include "base/rng.h"
#include "base/status.h"
#include "router/request/answer_buffers.h"
#include "router/request/bad_words.h"
#include "router/request/request_metrics.h"
#include "router/request/request_spans.h"

namespace tandem {
namespace {

uint64_t RandomBits(uint64_t seed, uint64_t counter) {
  const auto bits = Philox4x32(seed, counter, 0);
  return (uint64_t{bits[1]} << 32) | bits[0];
}

// Adds a short retry-after to a refusal, because it is not known when the next request ends and
// makes room.
absl::Status Busy(absl::Status status) {
  SetRetryAfter(status, std::chrono::milliseconds(500));
  return status;
}

absl::Status ShuttingDown() { return Unavailable("the router is shutting down: retry elsewhere"); }

}  // namespace

Router::Router(RouterOptions options, const RouterParts& parts)
    : options_(std::move(options)),
      parts_(parts),
      pings_(parts.workers),
      pool_(parts.tokenizer, options_.tokenizing) {
  // Workers see the ids of several routers, so each router starts at a random number.
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
    if (!change_posted_.exchange(true)) parts_.loop.Post([this] { OnClusterChanged(); });
  });
}

RequestIdentity Router::NewIdentity(TimePoint deadline) {
  const uint64_t id = next_id_.fetch_add(1);
  const TimePoint received = parts_.clock.Now();
  return {.id = id,
          .seed = RandomBits(options_.random_seed, ~id),
          .received = received,
          .deadline = std::min(deadline, received + options_.max_request_time)};
}

absl::StatusOr<RequestId> Router::Submit(v1::GenerateRequest request, TimePoint deadline,
                                         ResponseStream& stream,
                                         const std::optional<TraceContext>& caller) {
  const TracePoint trace =
      BeginRequestTrace(parts_.tracer, options_.limits.model, parts_.clock, caller);
  absl::StatusOr<RequestId> id = Accept(std::move(request), deadline, stream, trace);
  if (!id.ok()) {
    parts_.metrics.OnEnd(id.status());
    EndRequestTrace(trace, id.status(), parts_.clock.Now());
  }
  return id;
}

absl::StatusOr<RequestId> Router::Accept(v1::GenerateRequest request, TimePoint deadline,
                                         ResponseStream& stream, const TracePoint& trace) {
  if (draining_) return ShuttingDown();
  const RequestLimits limits = CurrentLimits(request.route());
  RETURN_IF_ERROR(ValidateRequest(request, limits));
  RequestSpec spec = ResolveRequest(request, limits, NewIdentity(deadline));
  spec.trace = trace;
  if (request.has_text() || request.bad_words_size() > 0) {
    return SubmitText(std::move(request), limits, std::move(spec), stream);
  }
  RETURN_IF_ERROR(
      SetPrompt(std::move(*request.mutable_token_ids()->mutable_ids()), request, limits, spec));
  spec.prompt_hashes = Hash(
      request, {spec.sequence.prompt().data(), static_cast<size_t>(spec.sequence.prompt_size())});
  const RequestId id(spec.sequence.request_id());
  const auto shared = std::make_shared<RequestSpec>(std::move(spec));
  RETURN_IF_ERROR(
      HandOver(*shared, [this, shared, &stream] { Begin(std::move(*shared), stream); }));
  return id;
}

absl::StatusOr<RequestId> Router::SubmitText(v1::GenerateRequest request,
                                             const RequestLimits& limits, RequestSpec spec,
                                             ResponseStream& stream) {
  size_t bytes = request.text().size();
  for (const std::string& word : request.bad_words()) bytes += word.size();
  ASSIGN_OR_RETURN(TokenizePool::Admission admission, pool_.Admit(bytes));
  const RequestId id(spec.sequence.request_id());
  std::string text;
  if (request.has_text()) text = std::move(*request.mutable_text());
  auto job = std::make_shared<TokenizePool::Job>(TokenizePool::Job{
      .admission = std::move(admission), .work = TokenizeWork(std::move(text), EncodeOptions())});
  const TracePoint tokenizing = spec.trace.Begin("tokenize", SpanKind::kInternal, spec.received);
  const std::shared_ptr<Arrival> arrival(new Arrival{.request = std::move(request),
                                                     .limits = limits,
                                                     .spec = std::move(spec),
                                                     .stream = stream,
                                                     .tokenizing = tokenizing});
  RETURN_IF_ERROR(
      HandOver(arrival->spec, [this, arrival, job] { AwaitTokens(arrival, std::move(*job)); }));
  return id;
}

// Hashes a prompt for the prefix index. Runs on the threads that receive or tokenize a prompt,
// because a long one takes a while.
std::shared_ptr<const PromptHashes> Router::Hash(const v1::GenerateRequest& request,
                                                 std::span<const int32_t> prompt) const {
  if (parts_.prefixes == nullptr || request.has_prompt_logprobs()) return nullptr;
  return HashPrompt(SpacesOf(*parts_.cluster.View()), request.cache_salt(), prompt);
}

// Does what takes a while before a request can begin (truncation, hashes, bad words), on the thread
// of the pool that tokenized its text.
absl::StatusOr<std::vector<int32_t>> Router::Prepare(Arrival& arrival,
                                                     std::vector<int32_t> ids) const {
  const v1::GenerateRequest& request = arrival.request;
  if (request.has_token_ids()) {
    ids.assign(request.token_ids().ids().begin(), request.token_ids().ids().end());
  }
  TruncatePrompt(request, ids);
  arrival.spec.prompt_hashes = Hash(request, ids);
  ASSIGN_OR_RETURN(*arrival.spec.sequence.mutable_bad_words(),
                   TokenizeBadWords(*parts_.tokenizer, request.bad_words()));
  return ids;
}

// Passes a request through admission control and has the loop call `begin`.
absl::Status Router::HandOver(const RequestSpec& spec, std::function<void()> begin) {
  RETURN_IF_ERROR(parts_.admission.Admit(spec.sequence.tenant(), spec.width(), parts_.clock.Now()));
  if (parts_.loop.TryPost(std::move(begin))) return absl::OkStatus();
  Release(spec);
  return Busy(ResourceExhausted("the router's queue is full: retry later"));
}

void Router::Release(const RequestSpec& spec) {
  parts_.admission.Release(spec.sequence.tenant(), spec.width(), parts_.clock.Now());
}

void Router::AwaitTokens(std::shared_ptr<Arrival> arrival, TokenizePool::Job job) {
  arrivals_.emplace(RequestId(arrival->spec.sequence.request_id()), arrival);
  job.unwanted = [arrival] { return arrival->ended.load(); };
  job.done = [this, arrival](absl::StatusOr<std::vector<int32_t>> ids) {
    if (ids.ok()) ids = Prepare(*arrival, *std::move(ids));
    parts_.loop.Post(
        [this, arrival, ids = std::move(ids)]() mutable { OnTokenized(*arrival, std::move(ids)); });
  };
  pool_.Tokenize(std::move(job));
}

void Router::OnTokenized(Arrival& arrival, absl::StatusOr<std::vector<int32_t>> ids) {
  if (arrival.ended) return;
  if (arrival.tokenizing.records()) arrival.tokenizing.End(parts_.clock.Now(), ids.status());
  const RequestId id(arrival.spec.sequence.request_id());
  if (!ids.ok()) return EndArrival(id, ids.status());
  const absl::Status fits =
      SetPrompt({ids->begin(), ids->end()}, arrival.request, arrival.limits, arrival.spec);
  if (!fits.ok()) return EndArrival(id, fits);
  if (parts_.clock.Now() >= arrival.spec.deadline) {
    return EndArrival(id, DeadlineExceeded("the deadline passed before the prompt was tokenized"));
  }
  RequestSpec spec = std::move(arrival.spec);
  ResponseStream& stream = arrival.stream;
  arrivals_.erase(id);
  Begin(std::move(spec), stream);
}

void Router::EndArrival(RequestId id, const absl::Status& status) {
  const auto found = arrivals_.find(id);
  if (found == arrivals_.end()) return;
  const std::shared_ptr<Arrival> arrival = found->second;
  arrivals_.erase(found);
  arrival->ended = true;
  Release(arrival->spec);
  parts_.metrics.OnEnd(status);
  EndRequestTrace(arrival->spec.trace, status, parts_.clock.Now());
  arrival->stream.End(status);
  ReportIfDrained();
}

RequestLimits Router::CurrentLimits(v1::Route wanted) const {
  RequestLimits limits = options_.limits;
  const int32_t served = parts_.cluster.View()->MaxContextTokens(wanted);
  if (served > 0) limits.max_context_tokens = std::min(limits.max_context_tokens, served);
  return limits;
}

void Router::Begin(RequestSpec spec, ResponseStream& stream) {
  const RequestId id(spec.sequence.request_id());
  if (draining_) {  // draining may have begun after Submit looked, and Drain must not miss this one
    Release(spec);
    parts_.metrics.OnEnd(ShuttingDown());
    EndRequestTrace(spec.trace, ShuttingDown(), parts_.clock.Now());
    stream.End(ShuttingDown());
    return ReportIfDrained();
  }
  ++total_;
  parts_.admission.ChargeTokens(spec.sequence.tenant(), spec.sequence.prompt_size(),
                                parts_.clock.Now());
  const auto ended = [this, id, tenant = spec.sequence.tenant(), width = spec.width()] {
    parts_.admission.Release(tenant, width, parts_.clock.Now());
    parts_.loop.Post([this, id] { Forget(id); });
  };
  const auto waits = [this, id](Request& waiting) { waiting_.emplace(id, &waiting); };
  std::unique_ptr<Request>& started = requests_[id];
  started = std::make_unique<Request>(parts_, std::move(spec), stream, ended, waits);
  started->Start();
}

void Router::Cancel(RequestId id, const absl::Status& status) {
  parts_.loop.Post([this, id, status] {
    const auto found = requests_.find(id);
    if (found != requests_.end()) return found->second->Cancel(status);
    EndArrival(id, status);
  });
}

void Router::Drain(TimePoint deadline, std::function<void()> drained) {
  draining_ = true;
  // Refuses the texts that wait: their requests would be refused once they are tokenized, so their
  // clients may as well know now.
  pool_.Close();
  parts_.loop.Post([this, deadline, drained = std::move(drained)] {
    drained_ = drained;
    ReportIfDrained();
    if (!drained_) return;
    parts_.loop.PostAt(deadline, [this] {
      for (auto& [id, request] : requests_) {
        request->Cancel(ShuttingDown());
      }
      std::vector<RequestId> arriving;
      for (const auto& [id, arrival] : arrivals_) arriving.push_back(id);
      for (const RequestId id : arriving) EndArrival(id, ShuttingDown());
    });
  });
}

void Router::Forget(RequestId id) {
  waiting_.erase(id);
  requests_.erase(id);
  ReportIfDrained();
}

void Router::ReportIfDrained() {
  if (!requests_.empty() || !arrivals_.empty() || texts_ > 0) return;
  if (drained_) std::exchange(drained_, nullptr)();
}

void Router::WatchLeases(TimePoint due) {
  const Duration turn = parts_.cluster.options().lease / 4;
  const TimePoint now = parts_.clock.Now();
  // The timer is this late only if the process or its machine was stopped: the heartbeats of that
  // time are still unread.
  if (now - due > turn) {
    LogWarn("this router was stalled for {} ms: leases last longer by as much",
            std::chrono::duration_cast<std::chrono::milliseconds>(now - due).count());
    parts_.cluster.Postpone(now - due);
  }
  const std::vector<WorkerId> lapsed = parts_.cluster.Expire();
  leases_lapsed_ += lapsed.size();
  Lose(lapsed, CallEnd::Source::kLease, "its lease lapsed");
  const std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  parts_.workers.KeepOnly(*view);
  if (parts_.prefixes != nullptr) parts_.prefixes->KeepOnly(*view);
  const TimePoint next = std::min(parts_.cluster.NextExpiry(), now + turn);
  parts_.loop.PostAt(next, [this, next] { WatchLeases(next); });
}

// Pings the workers three times per lease, so that a connection that is cut is noticed no later
// than a process that is killed.
void Router::WatchConnections(TimePoint due) {
  const Duration turn = parts_.cluster.options().lease / 3;
  const TimePoint now = parts_.clock.Now();
  const Pings::Pace pace = now - due > turn ? Pings::Pace::kLate : Pings::Pace::kOnTime;
  const Pings::Changes changes = pings_.Turn(*parts_.cluster.View(), now, pace);
  for (const WorkerId& id : changes.reachable) {
    LogInfo("worker={} incarnation={} answers pings again", id.name, id.incarnation);
    parts_.cluster.SetReach(id, Cluster::Reach::kRegained);
  }
  for (const WorkerId& id : changes.unreachable) {
    parts_.cluster.SetReach(id, Cluster::Reach::kLost);
  }
  Lose(changes.unreachable, CallEnd::Source::kNetwork,
       "it does not answer the router's pings, though its heartbeats arrive");
  parts_.loop.PostAt(now + turn, [this, next = now + turn] { WatchConnections(next); });
}

// Ends the calls of all requests to workers that are lost: their lease lapsed, another process took
// their name, or they do not answer.
void Router::Lose(const std::vector<WorkerId>& lost, CallEnd::Source source, const char* why) {
  if (lost.empty()) return;
  for (const WorkerId& id : lost) {
    LogWarn("worker={} incarnation={} lost why=\"{}\"", id.name, id.incarnation, why);
  }
  const CallEnd end{Unavailable("{}", why), source};
  for (auto& [id, request] : requests_) request->OnWorkersLost(lost, end);
}

void Router::OnClusterChanged() {
  change_posted_ = false;
  // Nothing else would report the loss of replaced workers: their connections may stand, and they
  // have no lease here that could lapse.
  Lose(parts_.cluster.TakeReplaced(), CallEnd::Source::kLease,
       "another process has taken its name");
  std::vector<WorkerId> stuck;
  std::vector<WorkerId> leaving;
  const std::shared_ptr<const ClusterView> view = parts_.cluster.View();
  parts_.ledger.OnReports(*view);
  for (const WorkerView& worker : view->workers) {
    if (!worker.load.ready()) stuck.push_back(worker.id);
    if (worker.leaving) leaving.push_back(worker.id);
  }
  const CallEnd end{Unavailable("it makes no progress"), CallEnd::Source::kStuck};
  if (!stuck.empty() || !leaving.empty()) {
    for (auto& [id, request] : requests_) {
      if (!stuck.empty()) request->OnWorkersLost(stuck, end);
      if (!leaving.empty()) request->OnWorkersLeaving(leaving);
    }
  }
  for (auto& [id, request] : waiting_) request->OnClusterChanged();
  std::erase_if(waiting_, [](const auto& one) { return !one.second->waits(); });
}

void Router::Tokenize(TokenizeWork work, std::function<bool()> unwanted, Tokenized done) {
  if (parts_.tokenizer == nullptr) {
    return done(FailedPrecondition("model {} has no tokenizer.json here", options_.limits.model));
  }
  absl::StatusOr<TokenizePool::Admission> admission = pool_.Admit(work.text_bytes);
  if (!admission.ok()) return done(admission.status());
  ++texts_;
  // Drain waits until texts_ is 0, because the client is not answered until `done` has run.
  const auto answered = [this, done = std::move(done)](absl::StatusOr<std::vector<int32_t>> ids) {
    done(std::move(ids));
    if (--texts_ == 0 && draining_) parts_.loop.Post([this] { ReportIfDrained(); });
  };
  pool_.Tokenize({.admission = *std::move(admission),
                  .work = std::move(work),
                  .unwanted = std::move(unwanted),
                  .done = answered});
}

void Router::Explain(v1::ExplainRequest request, Explained done) {
  if (absl::Status valid = ValidateExplain(request); !valid.ok()) return done(std::move(valid));
  const auto explain = [this, request = std::move(request), done] {
    done(parts_.decisions.Explain(request, parts_.clock.Now()));
  };
  if (!parts_.loop.TryPost(explain)) {
    done(Busy(ResourceExhausted("the router's queue is full: retry later")));
  }
}

v1::GetStatusResponse Router::Status() const {
  const auto view = parts_.cluster.View();
  v1::GetStatusResponse response;
  for (const v1::Route route : view->Routes()) response.add_routes(route);
  response.set_ready(response.routes_size() > 0 && !draining_);
  response.set_model(options_.limits.model);
  response.set_version(options_.version);
  response.set_max_context_tokens(CurrentLimits(v1::ROUTE_AUTO).max_context_tokens);
  response.set_requests_in_flight(parts_.admission.in_flight());
  response.set_requests_total(total_);
  *response.mutable_admission() = parts_.admission.Use();
  *response.mutable_resumes() = parts_.resumes.Use();
  *response.mutable_reroutes() = parts_.reroutes.Use();
  *response.mutable_routing() = parts_.routing.Use();
  *response.mutable_output_lengths() = parts_.length_forecasts.Use();
  *response.mutable_tokenizing() = pool_.Use();
  response.set_leases_lapsed(leases_lapsed_);
  *response.mutable_predictions() = parts_.decisions.Use();
  if (parts_.answers != nullptr) *response.mutable_answers() = parts_.answers->Use();
  if (parts_.prefixes != nullptr) *response.mutable_prefix_index() = parts_.prefixes->Use();
  if (parts_.sessions != nullptr) *response.mutable_sessions() = parts_.sessions->Use();
  const TimePoint now = parts_.clock.Now();
  for (const WorkerView& worker : view->workers) {
    if (worker.name_taken) continue;  // names are unique in a status
    v1::WorkerStatus& status = *response.add_workers();
    status.set_name(worker.id.name);
    status.set_role(std::string(Name(worker.role)));
    status.set_address(worker.info->address);
    status.set_alive(!worker.suspected);
    status.set_draining(worker.leaving);
    status.set_heartbeat_age_ms(ToMilliseconds(now - worker.last_report));
    status.set_pid(worker.info->pid);
    status.set_device(worker.info->device);
    v1::WorkerLoad& load = *status.mutable_load();
    load = *worker.load;
    load.clear_weights_hash();  // not shown: workers prove by it that they belong here
    if (worker.unreachable) {
      load.set_not_ready(fmt::format("does not answer the router at {}", worker.info->address));
    }
  }
  return response;
}

}  // namespace tandem
