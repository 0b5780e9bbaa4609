#include "router/explain/prediction_comparison.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"

namespace tandem {
namespace {

// Predicted or actual milliseconds by term, from the decision on.
using Terms = std::array<double, kNumPredictionTerms>;

double& Of(Terms& terms, PredictionTerm term) { return terms[static_cast<size_t>(term)]; }
double Of(const Terms& terms, PredictionTerm term) { return terms[static_cast<size_t>(term)]; }

// The term by whose actual time the error of `term` is divided, so that errors are relative.
PredictionTerm BaseOf(PredictionTerm term) {
  switch (term) {
    case PredictionTerm::kQueue:
    case PredictionTerm::kPrefill:
    case PredictionTerm::kAdmission:
    case PredictionTerm::kMessages:
      return PredictionTerm::kTtft;
    case PredictionTerm::kTransfer:
    case PredictionTerm::kHandOff:
    case PredictionTerm::kDecode:
      return PredictionTerm::kE2e;
    case PredictionTerm::kTtft:
    case PredictionTerm::kTpot:
    case PredictionTerm::kE2e:
      return term;
  }
  return term;
}

// The predicted times, scaled to the output that came. `further`: its tokens after the first.
Terms Predicted(const Decision& decision, double further) {
  const PlacementPrediction& prediction = *decision.route.score.prediction;
  const PredictedStages& stages = prediction.stages;
  const double expected = decision.expected_output_tokens - 1;
  const double scale = expected > 0 ? further / expected : 0;
  Terms terms{};
  Of(terms, PredictionTerm::kTtft) = prediction.ttft.count();
  Of(terms, PredictionTerm::kQueue) = stages.queue.count();
  Of(terms, PredictionTerm::kPrefill) = stages.prefill.count();
  Of(terms, PredictionTerm::kAdmission) = stages.admission.count();
  Of(terms, PredictionTerm::kMessages) = stages.messages.count();
  const double transfer = further > 0 ? stages.transfer.count() : 0;
  const double decode = stages.decode.count() * scale;
  Of(terms, PredictionTerm::kTransfer) = transfer;
  Of(terms, PredictionTerm::kHandOff) = prediction.hand_off.count();
  Of(terms, PredictionTerm::kDecode) = decode;
  Of(terms, PredictionTerm::kE2e) = prediction.ttft.count() + transfer + decode;
  Of(terms, PredictionTerm::kTpot) = further > 0 ? (transfer + decode) / further : 0;
  return terms;
}

Terms Actual(const Decision& decision, const RequestEnd& end, double further) {
  const v1::ChoiceFinish& finish = *end.finish;
  const v1::Stages& stages = finish.stages();
  const double decided = ToMilliseconds(decision.at);
  const double exposed = finish.kv_bytes().exposed_ms();
  const PlacementPrediction& prediction = *decision.route.score.prediction;
  const ModelTime of_bytes = prediction.stages.transfer - prediction.hand_off;
  Terms terms{};
  Of(terms, PredictionTerm::kTtft) = stages.ttft_ms() - decided;
  Of(terms, PredictionTerm::kTpot) = finish.tpot_ms();
  Of(terms, PredictionTerm::kE2e) = finish.e2e_ms() - decided;
  Of(terms, PredictionTerm::kQueue) = stages.queue_ms();
  Of(terms, PredictionTerm::kPrefill) =
      stages.prefill_ms() + stages.transfer_ms() + stages.first_token_ms();
  Of(terms, PredictionTerm::kAdmission) = ToMilliseconds(end.admission);
  Of(terms, PredictionTerm::kMessages) = stages.residual_ms() + stages.reserve_ms() - decided;
  Of(terms, PredictionTerm::kTransfer) = exposed;
  Of(terms, PredictionTerm::kHandOff) = exposed - of_bytes.count();
  Of(terms, PredictionTerm::kDecode) = std::max(0.0, finish.tpot_ms() * further - exposed);
  return terms;
}

bool IsMoved(PredictionTerm term) {
  return term == PredictionTerm::kTransfer || term == PredictionTerm::kHandOff ||
         term == PredictionTerm::kAdmission;
}

// Whether later predictions use the actual times of this term.
bool IsLearned(PredictionTerm term) {
  return term == PredictionTerm::kMessages || term == PredictionTerm::kHandOff;
}

// Whether the request ran in one attempt, where it was sent first. Otherwise the time that no stage
// explains holds that of earlier attempts.
bool IsOfOneAttempt(const Decision& decision, const RequestEnd& end) {
  return decision.cause == DecisionCause::kArrival && end.resumes == 0;
}

bool NeedsFurtherTokens(PredictionTerm term) {
  return term == PredictionTerm::kTpot || term == PredictionTerm::kDecode ||
         term == PredictionTerm::kTransfer || term == PredictionTerm::kHandOff;
}

// Why the prediction of a decision cannot be compared with how its request ended; empty where it
// can.
std::string WhyNot(const Decision& decision, const RequestEnd& end) {
  if (!decision.route.score.prediction) return "the routing policy predicted nothing";
  if (!end.status.ok()) return "the request did not end whole";
  if (!end.finish) return "no choice of the request ended";
  if (end.sent_whole) return "its output was sent in one piece, when all of it was there";
  if (!DecidesOn(decision, *end.finish)) {
    return "the request ended at workers that no kept decision is on";
  }
  if (end.finish->stages().ttft_ms() <= ToMilliseconds(decision.at)) {
    return "its first token came before the decision on its workers";
  }
  return "";
}

}  // namespace

bool DecidesOn(const Decision& decision, const v1::ChoiceFinish& finish) {
  const RouteDecision& route = decision.route;
  const WorkerId& output = route.route == v1::ROUTE_UNIFIED ? route.prefill : route.decode;
  return finish.prefill_worker() == route.prefill.name && finish.decode_worker() == output.name;
}

bool Residual::IsInside() const {
  return interval_ms > 0 && std::abs(predicted_ms - actual_ms) <= interval_ms;
}

Comparison Compare(const Decision& decision, const RequestEnd& end) {
  Comparison comparison{.residuals = {}, .not_compared = WhyNot(decision, end)};
  if (!comparison.not_compared.empty()) return comparison;
  const double further = std::max(0, end.finish->completion_tokens() - 1);
  // A decode that was not predicted cannot be scaled to the tokens that came.
  const bool decode_predicted = further == 0 || decision.expected_output_tokens > 1;
  const Terms predicted = Predicted(decision, further);
  const Terms actual = Actual(decision, end, further);
  for (size_t i = 0; i < kNumPredictionTerms; ++i) {
    const auto term = static_cast<PredictionTerm>(i);
    const PredictionTerm base = BaseOf(term);
    if (IsMoved(term) && decision.route.route == v1::ROUTE_UNIFIED) continue;
    if (NeedsFurtherTokens(term) && further == 0) continue;
    if (IsLearned(term) && !IsOfOneAttempt(decision, end)) continue;
    if (base != PredictionTerm::kTtft && !decode_predicted) continue;
    const double whole = Of(actual, base);
    const double relative = (predicted[i] - actual[i]) / whole;
    if (!(whole > 0) || !std::isfinite(relative)) continue;
    comparison.residuals.push_back({.term = term,
                                    .predicted_ms = predicted[i],
                                    .actual_ms = actual[i],
                                    .relative = relative,
                                    .interval_ms = decision.stated[i] * Of(predicted, base)});
  }
  return comparison;
}

}  // namespace tandem
