#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "router/explain/decision_record.h"
#include "router/explain/prediction_book.h"
#include "router/request/request_spec.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

struct DecisionLogLimits {
  size_t requests = 4096;
  size_t bytes = size_t{32} << 20;
};

// Checks a request for explanations. INVALID_ARGUMENT names the field at fault: a number of
// requests that is out of range, or an id that no request can have.
absl::Status ValidateExplain(const v1::ExplainRequest& request);

// Remembers why the latest requests went where they went, what was predicted for them, and what
// came true. When a request has ended, prediction and actual times are compared and the errors
// entered in the PredictionBook. The oldest request makes room for another; the text of requests is
// not kept.
// Thread: the router's loop; Use is thread-safe.
class DecisionLog {
 public:
  // The most decisions that are kept of one request: the first one and the latest ones.
  static constexpr size_t kMaxDecisions = 8;
  // The most requests that one call of Explain returns.
  static constexpr int32_t kMaxLatest = 256;

  // policy: the name of the routing policy. `book` outlives the log.
  DecisionLog(std::string policy, PredictionBook& book, DecisionLogLimits limits = {});

  // The request goes to `route.prefill` and `route.decode`. `query` is what the policy was asked.
  void Add(const RequestSpec& spec, const RouteQuery& query, DecisionCause cause,
           const RouteDecision& route, TimePoint now);
  // By how much the actual TTFT of a request at `placement` may be off from the predicted one, as a
  // share of the prediction, by the errors of recent requests; nothing before there were enough.
  std::optional<double> TtftInterval(const ScoredPlacement& placement) const;
  // What was predicted when the request was sent to the workers that `finish` names; nothing where
  // no such prediction was made or is still kept.
  std::optional<v1::Prediction> PredictionFor(const RequestSpec& spec,
                                              const v1::ChoiceFinish& finish) const;
  // The prefill worker of the request has reported its hand-off.
  void SetHandoff(const RequestSpec& spec, v1::KvHandoff handoff);
  // The request has ended. To be called once.
  void End(const RequestSpec& spec, RequestEnd end);

  // Explains what is kept of the requests that `request` names; it is valid (ValidateExplain).
  // NOT_FOUND when no decision on such a request is kept.
  absl::StatusOr<v1::ExplainResponse> Explain(const v1::ExplainRequest& request,
                                              TimePoint now) const;
  v1::PredictionUse Use() const;

 private:
  struct Entry {
    uint64_t number;  // of the request, as workers know it
    DecisionRecord record;
    size_t bytes = 0;  // the bytes that were counted for the record
  };

  Entry* Find(const RequestSpec& spec) const;
  Entry& EntryOf(const RequestSpec& spec, const RouteQuery& query);
  void CountBytes(Entry& entry);
  void DropOldest();

  const std::string policy_;
  PredictionBook& book_;
  const DecisionLogLimits limits_;
  std::deque<std::unique_ptr<Entry>> entries_;  // oldest first
  absl::flat_hash_map<uint64_t, Entry*> by_number_;
  absl::flat_hash_map<std::string, Entry*> by_id_;  // the latest request of each id
  std::atomic<uint64_t> decisions_ = 0;
  std::atomic<size_t> kept_ = 0;
  std::atomic<size_t> bytes_ = 0;
};

}  // namespace tandem
