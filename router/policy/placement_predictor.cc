#include "router/policy/placement_predictor.h"

#include <algorithm>

#include "router/ledger/worker_queues.h"
#include "router/policy/link_costs.h"

namespace tandem {
namespace {

const LinkModel* FindLink(const absl::flat_hash_map<std::string_view, LinkModel>& links,
                          const WorkerView& decode) {
  const auto found = links.find(decode.id.name);
  return found == links.end() ? nullptr : &found->second;
}

// The part of the request of `query` that waits at the worker; null where it does not wait there.
const PartInFlight* OwnPart(const RouteQuery& query, const WorkerView& worker) {
  const WaitingPart* const waiting = query.WaitingAt(worker.id);
  return waiting == nullptr ? nullptr : waiting->part;
}

}  // namespace

std::string PlacementPredictor::WithoutCosts(const Candidates& candidates) {
  for (const auto* role : {&candidates.unified, &candidates.prefill, &candidates.decode}) {
    for (const Candidate& one : *role) {
      if (one.worker->costs == nullptr) return RoleAndName(*one.worker);
    }
  }
  return "";
}

double PlacementPredictor::MessagesMs(const WorkerView& worker) const {
  return errors_ == nullptr ? 0.0 : errors_->MessagesMs(worker.id).value_or(0);
}

ModelTime PlacementPredictor::HandOff(const Placement& pair) const {
  if (errors_ == nullptr) return ModelTime::zero();
  return ModelTime(errors_->HandOffMs(pair.prefill->id, pair.decode->id).value_or(0));
}

WorkerState PlacementPredictor::QueuesAt(const WorkerView& worker, const RouteQuery& query) const {
  return QueuesOf(worker, ledger_.Find(worker.id),
                  {.now = ledger_.Now(),
                   .output_tokens = shape_.output_tokens,
                   .before = OwnPart(query, worker),
                   .messages_ms = MessagesMs(worker)});
}

void PlacementPredictor::Prepare(std::span<const Placement> placements, const RouteQuery& query) {
  shape_ = {.prompt_tokens = std::max(query.prompt_tokens, 1),
            .output_tokens = std::max(query.expected_output_tokens, 1.0),
            .sequences = std::max(query.sequences, 1),
            .evicted_tokens = query.evicted_tokens};
  unified_.clear();
  for (const Placement& placement : placements) {
    if (placement.decode != nullptr) continue;
    unified_[placement.prefill] = PredictUnified(QueuesAt(*placement.prefill, query), shape_,
                                                 query.CachedTokens(placement.prefill->id));
  }
  ForecastPrefills(placements, query);
  ForecastDecodes(placements, query);
}

void PlacementPredictor::ForecastPrefills(std::span<const Placement> placements,
                                          const RouteQuery& query) {
  prefill_.clear();
  for (const Placement& placement : placements) {
    if (placement.decode == nullptr) continue;
    const auto [at, is_new] = prefill_.try_emplace(placement.prefill);
    if (!is_new) continue;
    const WorkerView& worker = *placement.prefill;
    PrefillWorker& prefill = at->second;
    prefill.forecast =
        ForecastPrefill(QueuesAt(worker, query), shape_, query.CachedTokens(worker.id));
    prefill.kv = KvOf(worker);
    prefill.links = LinksOf(worker);
    if (prefill.kv) prefill.queued_bytes = QueuedBytes(worker, query, prefill.kv->bytes_per_token);
  }
}

// The bytes of KV that the worker has yet to send for earlier requests. It sends the KV of its
// requests one after the other, more or less, whichever peer they go to.
double PlacementPredictor::QueuedBytes(const WorkerView& prefill, const RouteQuery& query,
                                       int64_t bytes_per_token) const {
  const WorkerLedger* const ledger = ledger_.Find(prefill.id);
  if (ledger == nullptr) return 0;
  double tokens = 0;
  const PartInFlight* const own = OwnPart(query, prefill);
  for (const PartInFlight& part : ledger->parts()) {
    if (&part == own) break;
    tokens += part.prompt_tokens;
  }
  return tokens * static_cast<double>(bytes_per_token);
}

// Predicts the decode workers. They reserve blocks before the prefill; how long the KV then takes
// to come is estimated by the fastest prefill worker, so that each decode worker's queue is
// simulated only once.
void PlacementPredictor::ForecastDecodes(std::span<const Placement> placements,
                                         const RouteQuery& query) {
  decode_.clear();
  std::optional<ModelTime> fastest;
  for (const auto& [worker, prefill] : prefill_) {
    if (!prefill.forecast) continue;
    const ModelTime time = prefill.forecast->queue + prefill.forecast->prefill;
    fastest = std::min(fastest.value_or(time), time);
  }
  for (const Placement& placement : placements) {
    if (placement.decode == nullptr) continue;
    const auto [at, is_new] = decode_.try_emplace(placement.decode);
    if (!is_new) continue;
    at->second = ForecastDecode(QueuesAt(*placement.decode, query), shape_,
                                query.CachedTokens(placement.decode->id),
                                fastest.value_or(ModelTime::zero()));
  }
}

bool PlacementPredictor::HasLink(const Placement& pair) const {
  const PrefillWorker& prefill = prefill_.at(pair.prefill);
  return prefill.kv && FindLink(prefill.links, *pair.decode) != nullptr;
}

std::optional<PlacementPrediction> PlacementPredictor::Predict(const Placement& placement) const {
  if (placement.decode == nullptr) return unified_.at(placement.prefill);
  const PrefillWorker& prefill = prefill_.at(placement.prefill);
  const std::optional<DecodeForecast>& decode = decode_.at(placement.decode);
  const LinkModel* const measured = FindLink(prefill.links, *placement.decode);
  if (!prefill.forecast || !decode || !prefill.kv || measured == nullptr) return std::nullopt;
  // How long the link is busy with the KV of earlier requests, a part of which is sent before this
  // prefill begins.
  const ModelTime queued(prefill.queued_bytes / measured->bytes_per_second * 1e3);
  const ModelTime begins = std::max(decode->admission, prefill.forecast->queue);
  KvTransferShape kv = *prefill.kv;
  kv.hand_off = HandOff(placement);
  return JoinDisaggregated(shape_, kv, *prefill.forecast, *decode, *measured, 1,
                           std::max(ModelTime::zero(), queued - begins));
}

}  // namespace tandem
