#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "router/ledger/request_ledger.h"
#include "router/policy/candidates.h"
#include "router/policy/placement.h"
#include "router/policy/prediction_errors.h"
#include "router/policy/route_query.h"
#include "scheduler/latency_model/placement_model.h"

namespace tandem {

// Predicts the placements of one decision at a time. The queue of each worker is simulated once,
// and a pair of workers is predicted by joining their two forecasts, so that pairs cost little.
// Thread: the router's loop.
class PlacementPredictor {
 public:
  // `ledger` and `errors` outlive it; `errors` may be null.
  PlacementPredictor(const RequestLedger& ledger, const PredictionErrors* errors)
      : ledger_(ledger), errors_(errors) {}

  // Names the first candidate that has not reported what its steps cost; empty when all have.
  static std::string WithoutCosts(const Candidates& candidates);

  // A decision begins, among workers that have costs.
  void Prepare(std::span<const Placement> placements, const RouteQuery& query);
  // The prediction for `placement`, which is one of those that were prepared. Nothing where a
  // worker could not hold the request even alone, or where the link of a pair is not measured.
  std::optional<PlacementPrediction> Predict(const Placement& placement) const;
  // Whether the link between the two workers of `pair` was measured.
  bool HasLink(const Placement& pair) const;

 private:
  struct PrefillWorker {
    std::optional<PrefillForecast> forecast;
    std::optional<KvTransferShape> kv;
    absl::flat_hash_map<std::string_view, LinkModel> links;
    // The bytes of KV of other requests that the link has yet to carry.
    double queued_bytes = 0;
  };

  double MessagesMs(const WorkerView& worker) const;
  ModelTime HandOff(const Placement& pair) const;
  WorkerState QueuesAt(const WorkerView& worker, const RouteQuery& query) const;
  void ForecastPrefills(std::span<const Placement> placements, const RouteQuery& query);
  void ForecastDecodes(std::span<const Placement> placements, const RouteQuery& query);
  double QueuedBytes(const WorkerView& prefill, const RouteQuery& query,
                     int64_t bytes_per_token) const;

  const RequestLedger& ledger_;
  const PredictionErrors* const errors_;
  // The request that the latest decision is about.
  RequestShape shape_;
  absl::flat_hash_map<const WorkerView*, std::optional<PlacementPrediction>> unified_;
  absl::flat_hash_map<const WorkerView*, PrefillWorker> prefill_;
  absl::flat_hash_map<const WorkerView*, std::optional<DecodeForecast>> decode_;
};

}  // namespace tandem
