#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "router/client/pings.h"
#include "router/request/request.h"
#include "router/request/request_validation.h"
#include "router/request/resolve_request.h"
#include "router/request/tokenize_pool.h"
#include "tracing/request_trace.h"

namespace tandem {

struct RouterOptions {
  RequestLimits limits;
  Duration max_request_time = std::chrono::minutes(10);  // of requests without a nearer deadline
  uint64_t random_seed = 0;  // of request ids, and of sampling seeds that clients left out
  std::string version;
  TokenizePoolOptions tokenizing;
};

// Takes requests, sends them through workers and streams the answers. Its only state is the
// requests in flight, which live on the loop's thread. Submit, Cancel, Tokenize, Status,
// CurrentLimits, Explain and Drain are thread-safe.
class Router {
 public:
  Router(RouterOptions options, const RouterParts& parts);
  ~Router();

  // Begins to watch leases and connections of the workers. Call once, before the loop runs.
  void Start();

  // Validates and admits a request on the caller's thread, and never tokenizes there. On success
  // the request is in flight: `stream` gets its events and exactly one End, and must live until
  // then. On error (the client's fault, RESOURCE_EXHAUSTED when too many are in flight, UNAVAILABLE
  // when draining) `stream` gets nothing. `caller`: the trace that the request continues, where its
  // client sent one.
  absl::StatusOr<RequestId> Submit(v1::GenerateRequest request, TimePoint deadline,
                                   ResponseStream& stream,
                                   const std::optional<TraceContext>& caller = std::nullopt);
  // Ends the request with `status`, if it is still in flight: its client has gone.
  void Cancel(RequestId id, const absl::Status& status);

  // Tokenizes a text. `done` is called once, on any thread, maybe before this returns.
  // RESOURCE_EXHAUSTED when too much text waits, UNAVAILABLE when draining. `unwanted` is asked
  // before the work whether the client has gone.
  using Tokenized = std::function<void(absl::StatusOr<std::vector<int32_t>>)>;
  void Tokenize(TokenizeWork work, std::function<bool()> unwanted, Tokenized done);
  v1::GetStatusResponse Status() const;
  // The limits of requests that want this route, as the workers that can serve it have them now.
  RequestLimits CurrentLimits(v1::Route wanted) const;

  // Explains where a request went and why. `done` is called once, on any thread, maybe before this
  // returns. INVALID_ARGUMENT names the field at fault; NOT_FOUND where nothing is kept of the
  // request; RESOURCE_EXHAUSTED on overload.
  using Explained = std::function<void(absl::StatusOr<v1::ExplainResponse>)>;
  void Explain(v1::ExplainRequest request, Explained done);

  // Refuses new requests from now on, lets those in flight end until `deadline` and fails the rest
  // with UNAVAILABLE; texts that still wait to be tokenized are refused at once, and those that are
  // being tokenized are finished, which takes seconds at most. `drained` is called once, on the
  // loop's thread, when no request and no text is left. Call once.
  void Drain(TimePoint deadline, std::function<void()> drained);

 private:
  // A request that is in flight and whose text or bad words are still to be tokenized.
  struct Arrival {
    v1::GenerateRequest request;  // without its text, which the pool has
    RequestLimits limits;
    RequestSpec spec;
    ResponseStream& stream;
    TracePoint tokenizing;
    std::atomic<bool> ended = false;
  };

  RequestIdentity NewIdentity(TimePoint deadline);
  absl::StatusOr<RequestId> Accept(v1::GenerateRequest request, TimePoint deadline,
                                   ResponseStream& stream, const TracePoint& trace);
  absl::StatusOr<RequestId> SubmitText(v1::GenerateRequest request, const RequestLimits& limits,
                                       RequestSpec spec, ResponseStream& stream);
  // The hashes by which the prefix index finds a prompt; null where no prefix hits are predicted.
  std::shared_ptr<const PromptHashes> Hash(const v1::GenerateRequest& request,
                                           std::span<const int32_t> prompt) const;
  absl::StatusOr<std::vector<int32_t>> Prepare(Arrival& arrival, std::vector<int32_t> ids) const;
  absl::Status HandOver(const RequestSpec& spec, std::function<void()> begin);
  void Release(const RequestSpec& spec);
  void AwaitTokens(std::shared_ptr<Arrival> arrival, TokenizePool::Job job);
  void OnTokenized(Arrival& arrival, absl::StatusOr<std::vector<int32_t>> ids);
  void EndArrival(RequestId id, const absl::Status& status);
  void Begin(RequestSpec spec, ResponseStream& stream);
  void Forget(RequestId id);
  void ReportIfDrained();
  // due: the time at which the timer of this call should have fired.
  void WatchLeases(TimePoint due);
  void WatchConnections(TimePoint due);
  void Lose(const std::vector<WorkerId>& lost, CallEnd::Source source, const char* why);
  void OnClusterChanged();

  const RouterOptions options_;
  const RouterParts parts_;
  Pings pings_;
  std::atomic<uint64_t> next_id_;
  std::atomic<uint64_t> total_ = 0;
  std::atomic<int32_t> texts_ = 0;  // calls of Tokenize that are not answered yet
  std::atomic<bool> draining_ = false;
  std::atomic<bool> change_posted_ = false;  // a task that calls OnClusterChanged waits
  std::atomic<uint64_t> leases_lapsed_ = 0;
  // requests_, arrivals_, waiting_ and drained_ belong to the loop's thread. requests_ is ordered,
  // so that an event of the cluster reaches the requests in the order in which they came: the
  // oldest takes what room there is, and a simulation depends on its inputs alone.
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::map<RequestId, std::shared_ptr<Arrival>> arrivals_;
  // The requests that wait for reports of the workers, and some that no longer do. Only these look
  // at a report, because one comes with almost every end of a request.
  std::map<RequestId, Request*> waiting_;
  std::function<void()> drained_;
  TokenizePool pool_;  // last, because its threads must have ended before the rest is destroyed
};

}  // namespace tandem
