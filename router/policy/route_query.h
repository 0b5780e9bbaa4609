#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "router/cluster/cluster_view.h"
#include "router/cluster/numerics.h"
#include "router/policy/slo.h"
#include "router/prefix/session_table.h"
#include "router/prefix/worker_hit.h"
#include "tandem/v1/inference.pb.h"

namespace tandem {

struct PartInFlight;

// What one worker has of a request that waits: its part in the ledger, and its share of the
// worker's load.
struct WaitingPart {
  WorkerId worker;
  const PartInFlight* part = nullptr;  // in the router's ledger; null: no part is there
  WorkerCharge charge;
};

// What a request asks of a route.
struct RouteQuery {
  v1::Route wanted = v1::ROUTE_AUTO;
  int32_t prompt_tokens = 0;
  int32_t evicted_tokens = 0;         // of the prompt, at its end
  int32_t context_tokens = 0;         // prompt and output: a worker's context must hold them
  int32_t sequences = 1;              // that decode at a time: choices or beams
  double expected_output_tokens = 1;  // still to come of each, the next token included
  Slo slo;
  std::vector<WorkerId> excluded;  // not to be used, mostly because they were tried already
  std::optional<Begun> begun;      // the client has tokens that other workers must continue
  // The prefill worker that computed the prompt before and may still hold its KV: it prefills again
  // where it can and some worker can decode.
  std::optional<WorkerId> prompt_at;
  // What workers are predicted to have cached of the prompt, ordered by worker; null: nothing.
  std::shared_ptr<const std::vector<WorkerHit>> hits = nullptr;
  // Where the latest request of the same session ran: this one goes there, unless these workers
  // cannot take it or are overloaded.
  std::optional<SessionPlace> session = std::nullopt;
  // The workers at which the request waits already: they are scored by what was sent there before
  // it.
  std::vector<WaitingPart> waits_at = {};

  // The tokens of the prompt that this worker, whatever its role, is predicted to have cached. Less
  // than prompt_tokens; 0 where nothing is known.
  int32_t CachedTokens(const WorkerId& worker) const;
  // What the request has at this worker; null: it does not wait there.
  const WaitingPart* WaitingAt(const WorkerId& worker) const;
};

// `view` as it would be if the request of `query` waited nowhere: neither what the router charged
// its workers with nor what they report contains it.
ClusterView WithoutWaiting(ClusterView view, const RouteQuery& query);

}  // namespace tandem
