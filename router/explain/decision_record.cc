#include "router/explain/decision_record.h"

#include <algorithm>

namespace tandem {
namespace {

std::string_view Name(DecisionCause cause) {
  switch (cause) {
    case DecisionCause::kArrival:
      return "arrival";
    case DecisionCause::kRefused:
      return "refused";
    case DecisionCause::kResumed:
      return "resumed";
    case DecisionCause::kMoved:
      return "moved";
  }
  return "";
}

// The bytes that a string takes on the heap: none where it is short.
size_t HeapBytes(const std::string& text) {
  static const size_t kWithin = std::string().capacity();
  return text.capacity() > kWithin ? text.capacity() + 1 : 0;
}

size_t HeapBytes(const ScoredPlacement& placement) {
  return HeapBytes(placement.prefill.name) + HeapBytes(placement.decode.name) +
         HeapBytes(placement.score.ineligible) +
         placement.score.features.capacity() * sizeof(Feature);
}

size_t HeapBytes(const Decision& decision) {
  const RouteDecision& route = decision.route;
  size_t bytes = HeapBytes(static_cast<const ScoredPlacement&>(route)) + HeapBytes(route.reason) +
                 route.considered.capacity() * sizeof(ScoredPlacement);
  for (const ScoredPlacement& one : route.considered) bytes += HeapBytes(one);
  return bytes;
}

bool IsSame(const ScoredPlacement& a, const ScoredPlacement& b) {
  return a.route == b.route && a.prefill == b.prefill && a.decode == b.decode;
}

v1::Prediction ToMessage(const PlacementPrediction& prediction, const Decision& decision) {
  const double decided = ToMilliseconds(decision.at);
  v1::Prediction message;
  message.set_ttft_ms(decided + prediction.ttft.count());
  message.set_tpot_ms(prediction.tpot.count());
  message.set_e2e_ms(decided + prediction.e2e.count());
  message.set_queue_ms(prediction.stages.queue.count());
  message.set_prefill_ms(prediction.stages.prefill.count());
  message.set_transfer_ms(prediction.stages.transfer.count());
  message.set_admission_ms(prediction.stages.admission.count());
  message.set_decode_ms(prediction.stages.decode.count());
  message.set_messages_ms(prediction.stages.messages.count());
  message.set_decided_ms(decided);
  message.set_output_tokens(decision.expected_output_tokens);
  return message;
}

v1::PlacementCandidate ToMessage(const ScoredPlacement& placement, const Decision& decision) {
  v1::PlacementCandidate message;
  message.set_route(placement.route);
  message.set_prefill_worker(placement.prefill.name);
  message.set_decode_worker(placement.decode.name);
  message.set_cost(placement.score.cost);
  message.set_cost_is_ms(placement.score.unit == PlacementScore::Unit::kMilliseconds);
  for (const Feature& feature : placement.score.features) {
    v1::PlacementFeature& one = *message.add_features();
    one.set_name(std::string(feature.name));
    one.set_value(feature.value);
  }
  if (placement.score.prediction) {
    *message.mutable_predicted() = ToMessage(*placement.score.prediction, decision);
  }
  return message;
}

// How much more the best other placement costs than the chosen one.
std::optional<double> MarginOf(const RouteDecision& route) {
  std::optional<double> best;
  for (const ScoredPlacement& one : route.considered) {
    if (IsSame(one, route)) continue;
    best = std::min(best.value_or(one.score.cost), one.score.cost);
  }
  if (!best) return std::nullopt;
  return *best - route.score.cost;
}

v1::RoutingDecision ToMessage(const Decision& decision) {
  const RouteDecision& route = decision.route;
  v1::RoutingDecision message;
  message.set_decided_ms(ToMilliseconds(decision.at));
  message.set_cause(std::string(Name(decision.cause)));
  message.set_expected_output_tokens(decision.expected_output_tokens);
  for (const ScoredPlacement& one : route.considered) {
    if (IsSame(one, route)) message.set_chosen(message.candidates_size());
    *message.add_candidates() = ToMessage(one, decision);
  }
  message.set_placements(static_cast<int32_t>(route.placements));
  if (const auto margin = MarginOf(route)) message.set_margin(*margin);
  message.set_reason(route.reason);
  const auto interval = [&decision](PredictionTerm term) {
    return decision.route.score.prediction ? decision.stated[static_cast<size_t>(term)] : 0;
  };
  message.set_ttft_interval(interval(PredictionTerm::kTtft));
  message.set_tpot_interval(interval(PredictionTerm::kTpot));
  message.set_e2e_interval(interval(PredictionTerm::kE2e));
  return message;
}

v1::RequestOutcome ToMessage(const RequestEnd& end, const Comparison& comparison) {
  v1::RequestOutcome message;
  message.set_status(end.status.ok() ? "OK" : end.status.ToString());
  if (end.finish) *message.mutable_finish() = *end.finish;
  message.set_resumes(end.resumes);
  message.set_cached_tokens(end.cached_tokens);
  message.set_evicted_tokens(end.evicted_tokens);
  for (const Residual& residual : comparison.residuals) {
    v1::PredictionResidual& one = *message.add_residuals();
    one.set_term(std::string(kPredictionTermNames[static_cast<size_t>(residual.term)]));
    one.set_predicted_ms(residual.predicted_ms);
    one.set_actual_ms(residual.actual_ms);
    one.set_relative(residual.relative);
    one.set_interval_ms(residual.interval_ms);
  }
  message.set_not_compared(comparison.not_compared);
  return message;
}

}  // namespace

const Decision& DecisionThatTookEffect(const DecisionRecord& record,
                                       const v1::ChoiceFinish& finish) {
  for (size_t i = record.decisions.size(); i > 0; --i) {
    if (DecidesOn(record.decisions[i - 1], finish)) return record.decisions[i - 1];
  }
  return record.decisions.back();
}

std::optional<v1::Prediction> PredictionOf(const Decision& decision) {
  const auto& prediction = decision.route.score.prediction;
  if (!prediction) return std::nullopt;
  return ToMessage(*prediction, decision);
}

size_t BytesOf(const DecisionRecord& record) {
  size_t bytes = sizeof(record) + HeapBytes(record.request_id) +
                 record.decisions.capacity() * sizeof(Decision) +
                 record.comparison.residuals.capacity() * sizeof(Residual) +
                 HeapBytes(record.comparison.not_compared);
  for (const Decision& decision : record.decisions) bytes += HeapBytes(decision);
  bytes += HeapBytes(record.kv_quality);
  if (record.handoff) bytes += record.handoff->SpaceUsedLong();
  if (!record.end) return bytes;
  if (record.end->finish) bytes += record.end->finish->SpaceUsedLong();
  return bytes + record.end->status.message().size();
}

v1::RequestExplanation ToMessage(const DecisionRecord& record, std::string_view policy,
                                 TimePoint now) {
  v1::RequestExplanation message;
  message.set_request_id(record.request_id);
  message.set_policy(std::string(policy));
  message.set_age_ms(ToMilliseconds(now - record.received));
  message.set_wanted(record.wanted);
  message.set_prompt_tokens(record.prompt_tokens);
  message.set_max_tokens(record.max_tokens);
  message.set_sequences(record.sequences);
  if (record.slo.ttft) message.set_ttft_slo_ms(record.slo.ttft->count());
  if (record.slo.tpot) message.set_tpot_slo_ms(record.slo.tpot->count());
  for (const Decision& decision : record.decisions) {
    *message.add_decisions() = ToMessage(decision);
  }
  message.set_decisions_left_out(record.left_out);
  message.set_kv_quality(record.kv_quality);
  if (record.handoff) *message.mutable_handoff() = *record.handoff;
  if (record.end) *message.mutable_outcome() = ToMessage(*record.end, record.comparison);
  return message;
}

}  // namespace tandem
