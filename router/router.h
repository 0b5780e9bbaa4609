#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/ids.h"
#include "router/pings.h"
#include "router/request.h"
#include "router/request_validation.h"

namespace tandem {

struct RouterOptions {
  RequestLimits limits;
  int32_t max_in_flight = 1024;                          // choices (or beams) of all requests
  Duration max_request_time = std::chrono::minutes(10);  // for requests without a nearer deadline
  uint64_t random_seed = 0;                              // of request ids and of seeds nobody gave
  std::string version;
};

// Takes requests, sends them through workers, streams the answers. Holds no state but the requests
// in flight, all of which live on the loop's thread.
// Submit, Cancel, Tokenize, Status and Drain are thread-safe.
class Router {
 public:
  Router(RouterOptions options, const RouterParts& parts);
  ~Router();

  // Begins to watch the workers. Call once, before the loop runs.
  void Start();

  // Validates and tokenizes on the caller's thread, then hands over. On success the request is in
  // flight: `stream` hears its events and exactly one End, and must live until then. On error
  // (the client's fault, RESOURCE_EXHAUSTED when too many are in flight, UNAVAILABLE when draining)
  // it hears nothing.
  absl::StatusOr<RequestId> Submit(const v1::GenerateRequest& request, TimePoint deadline,
                                   ResponseStream& stream);
  // The client is gone: ends the request, if it is still in flight, with `status`.
  void Cancel(RequestId id, const absl::Status& status);

  absl::StatusOr<std::vector<int32_t>> Tokenize(const v1::TokenizeRequest& request) const;
  v1::GetStatusResponse Status() const;

  // Refuses new requests from now on, lets those in flight end until `deadline` and fails the rest
  // with UNAVAILABLE. `drained` is called once, on the loop's thread, when none is left. Call once.
  void Drain(TimePoint deadline, std::function<void()> drained);

 private:
  absl::StatusOr<RequestSpec> Resolve(const v1::GenerateRequest& request, TimePoint received,
                                      TimePoint deadline);
  RequestLimits CurrentLimits() const;
  absl::Status Admit(int32_t width);
  void Begin(RequestId id, RequestSpec spec, ResponseStream& stream);
  void Forget(RequestId id);
  // due: when this was to run.
  void WatchLeases(TimePoint due);
  void WatchConnections(TimePoint due);  // likewise
  void Lose(const std::vector<WorkerId>& lost, CallEnd::Source source, const char* why);
  void OnClusterChanged();

  const RouterOptions options_;
  const RouterParts parts_;
  Pings pings_;
  std::atomic<uint64_t> next_id_;
  std::atomic<uint64_t> total_ = 0;
  std::atomic<int32_t> in_flight_ = 0;  // rows: choices and beams
  std::atomic<bool> draining_ = false;
  std::atomic<bool> has_news_ = false;  // of the cluster; a task that will look at it is posted
  absl::flat_hash_map<RequestId, std::unique_ptr<Request>> requests_;  // loop's thread
  std::function<void()> drained_;                                      // likewise
};

}  // namespace tandem
