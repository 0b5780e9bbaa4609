#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "router/cluster/numerics.h"
#include "router/cluster/worker_view.h"
#include "router/policy/slo.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

// What a request asks of a route.
struct RouteQuery {
  v1::Route wanted = v1::ROUTE_AUTO;
  int32_t prompt_tokens = 0;
  int32_t context_tokens = 0;         // prompt and output: a worker's context must hold them
  int32_t sequences = 1;              // that decode at a time: choices or beams
  double expected_output_tokens = 1;  // still to come of each, the next token included
  Slo slo;
  std::vector<WorkerId> excluded;  // not to be used, mostly because they were tried already
  std::optional<Begun> begun;      // the client has tokens that other workers must continue
  // The prefill worker that computed the prompt before and may still hold its KV: it prefills again
  // where it can and some worker can decode.
  std::optional<WorkerId> prompt_at;

  // The tokens of the prompt that this worker is predicted to have in its prefix cache; 0 where
  // nothing is known.
  int32_t CachedTokens(const WorkerId&) const { return 0; }
};

}  // namespace tandem
