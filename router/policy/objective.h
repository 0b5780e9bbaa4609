#pragma once

#include "router/policy/route_query.h"
#include "scheduler/latency_model/placement_model.h"

namespace tandem {

// What a placement costs, in milliseconds: requests that keep their SLOs come first, then the time of
// the request and the time that it takes from others.
struct PlacementCost {
  double latency_ms = 0;      // of the request, to the end of its output
  double externality_ms = 0;  // that it adds to others, summed over all of them
  double slo_ms = 0;          // what the risk to miss its SLOs counts

  double total_ms() const { return latency_ms + externality_ms + slo_ms; }
};

// `error`: of the prediction, relative to what comes true. It makes a prediction near an SLO count as
// half a miss, and one that is far beyond it as a whole one and a little more for every millisecond.
PlacementCost CostOf(const PlacementPrediction& prediction, const Slo& slo, double output_tokens,
                     double error);

// How far the difference of two predicted costs may be wrong. An error of a stage is mostly common to
// both placements, because the same kind of step is mispredicted alike, so only that part of a stage
// counts by which they differ.
double DifferenceErrorMs(const PlacementPrediction& a, const PlacementPrediction& b, double error);

}  // namespace tandem
