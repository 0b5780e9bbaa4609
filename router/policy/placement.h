#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/cluster/worker_view.h"
#include "scheduler/latency_model/placement_model.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// One way to run a request: unified on `prefill`, or prefill and decode on one worker each.
struct Placement {
  const WorkerView* prefill;           // never null
  const WorkerView* decode = nullptr;  // null when unified

  v1::Route route() const {
    return decode == nullptr ? v1::ROUTE_UNIFIED : v1::ROUTE_DISAGGREGATED;
  }
};

// One number that a score was computed from, shown to whoever asks why. `name` is a string
// constant.
struct Feature {
  std::string_view name;
  double value = 0;
};

// How a policy rates one placement.
struct PlacementScore {
  enum class Unit : uint8_t {
    kKey,           // the cost only orders the placements of one decision
    kMilliseconds,  // the cost is a predicted time
  };
  double cost = 0;  // the placement with the lowest cost is taken
  Unit unit = Unit::kKey;
  std::string ineligible = {};  // why the placement must not be taken; empty: it may be
  std::vector<Feature> features = {};
  // The predicted stages of the request at this placement, where the policy predicts. In a
  // decision, the most likely ones.
  std::optional<PlacementPrediction> prediction = std::nullopt;
};

// A score as logs show it: "cost=128 prefill_load=128 decode_load=64".
std::string ToText(const PlacementScore& score);

// A placement with its score, by ids that stay valid when the workers are gone.
struct ScoredPlacement {
  v1::Route route = v1::ROUTE_UNIFIED;
  WorkerId prefill;
  WorkerId decode;  // empty when unified
  PlacementScore score;
};

// What a policy chose, and why.
struct RouteDecision : ScoredPlacement {
  enum class Basis : uint8_t {
    kLowestCost,
    kWithinError,  // the gain of another placement is smaller than the error of the prediction
    kNotMeasured,  // the policy predicts costs, but nothing was measured to predict them from
  };
  Basis basis = Basis::kLowestCost;
  // The placements with the lowest costs, the chosen one among them, at most kMostConsidered.
  static constexpr size_t kMostConsidered = 8;
  std::vector<ScoredPlacement> considered;
  size_t placements = 0;  // the number of placements that were scored
  std::string reason;     // why this one, where it is not for its predicted cost; else empty
};

}  // namespace tandem
