#pragma once

#include "router/policy/route_query.h"
#include "scheduler/latency_model/placement_model.h"

namespace tandem {

// What a placement costs, in milliseconds: requests that keep their SLOs come first, then the time
// of the request and the time that it takes from others.
struct PlacementCost {
  double latency_ms = 0;  // of the request, to the end of its output; the wait for it weighs more
  double externality_ms = 0;  // the time that it takes from others, in sum, with the same weights
  double slo_ms = 0;          // cost of the risk that the request misses its SLOs
  double others_slo_ms = 0;   // cost of the risk that others miss their SLOs because of it

  double total_ms() const { return latency_ms + externality_ms + slo_ms + others_slo_ms; }
};

// The time of the request itself, as it counts in its cost: that before the first token weighs
// more.
double LatencyMs(ModelTime ttft, ModelTime e2e);

// The cost of a placement by its prediction. `error`: of the prediction, relative to what comes
// true. It makes a prediction near an SLO count as half a miss, and one that is beyond it as a
// whole one. The other requests on the same workers are taken to have the same SLOs, and latencies
// around that of this request, their prompts being shorter or longer. So it pushes over their
// limits those that are near them: where all are far beyond anyway, nothing more is lost.
PlacementCost CostOf(const PlacementPrediction& prediction, const Slo& slo, double output_tokens,
                     double error);

// How far the difference of two predicted costs may be wrong. An error of a stage is mostly common
// to both placements, because the same kind of step is mispredicted alike, so only that part of a
// stage counts by which they differ.
double DifferenceErrorMs(const PlacementPrediction& a, const PlacementPrediction& b, double error);

}  // namespace tandem
