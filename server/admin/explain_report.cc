#include "server/admin/explain_report.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "fmt/format.h"
#include "server/admin/stage_bars.h"
#include "server/commands/generation.h"

namespace tandem {
namespace {

std::string Milliseconds(double ms) { return fmt::format("{:.3f}", ms); }

std::string Age(double ms) {
  if (ms < 1e3) return fmt::format("{:.0f} ms", ms);
  if (ms < 120e3) return fmt::format("{:.1f} s", ms / 1e3);
  return fmt::format("{:.0f} min", ms / 60e3);
}

std::string PlacementName(const std::string& prefill, const std::string& decode) {
  return decode.empty() || decode == prefill ? prefill : fmt::format("{} -> {}", prefill, decode);
}

std::string PlacementName(const v1::PlacementCandidate& candidate) {
  return PlacementName(candidate.prefill_worker(), candidate.decode_worker());
}

std::string Cost(const v1::PlacementCandidate& candidate, double cost) {
  return fmt::format("{:.4g}{}", cost, candidate.cost_is_ms() ? " ms" : "");
}

std::string Features(const v1::PlacementCandidate& candidate) {
  std::string text;
  for (const v1::PlacementFeature& feature : candidate.features()) {
    text += fmt::format("{}{}={:.4g}", text.empty() ? "" : " ", feature.name(), feature.value());
  }
  return text;
}

// The candidate that the decision chose; null where no candidates were kept.
const v1::PlacementCandidate* ChosenOf(const v1::RoutingDecision& decision) {
  if (decision.chosen() < 0 || decision.chosen() >= decision.candidates_size()) return nullptr;
  return &decision.candidates(decision.chosen());
}

std::string CandidateTable(const v1::RoutingDecision& decision) {
  static constexpr char kRow[] =
      "  {:1} {:<26} {:>12} {:>9} {:>9} {:>9} {:>9} {:>10} {:>9} {:>8} {:>10}  {}\n";
  std::string table = fmt::format(kRow, "", "PLACEMENT", "COST", "ADMISSION", "QUEUE", "PREFILL",
                                  "TRANSFER", "DECODE", "TTFT MS", "TPOT MS", "E2E MS", "FROM");
  for (int i = 0; i < decision.candidates_size(); ++i) {
    const v1::PlacementCandidate& one = decision.candidates(i);
    const v1::Prediction& p = one.predicted();
    const auto cell = [&one](double ms) {
      return one.has_predicted() ? Milliseconds(ms) : std::string("-");
    };
    table += fmt::format(kRow, i == decision.chosen() ? "*" : "", PlacementName(one),
                         Cost(one, one.cost()), cell(p.admission_ms()), cell(p.queue_ms()),
                         cell(p.prefill_ms()), cell(p.transfer_ms()), cell(p.decode_ms()),
                         cell(p.ttft_ms()), cell(p.tpot_ms()), cell(p.e2e_ms()), Features(one));
  }
  return table;
}

std::string Margin(const v1::RoutingDecision& decision) {
  const v1::PlacementCandidate* chosen = ChosenOf(decision);
  if (!decision.has_margin() || chosen == nullptr) return "  no other placement was possible\n";
  return fmt::format("  the best other placement costs {} {}\n",
                     Cost(*chosen, std::abs(decision.margin())),
                     decision.margin() < 0 ? "less" : "more");
}

std::string Stated(const v1::RoutingDecision& decision) {
  if (decision.ttft_interval() <= 0 && decision.e2e_interval() <= 0) return "";
  return fmt::format("  stated to be right within: TTFT {:.1f}%, TPOT {:.1f}%, E2E {:.1f}%\n",
                     100 * decision.ttft_interval(), 100 * decision.tpot_interval(),
                     100 * decision.e2e_interval());
}

std::string DecisionText(const v1::RoutingDecision& decision) {
  std::string text = fmt::format(
      "decision {:.3f} ms after arrival, cause: {}; {} placements scored, {:.1f} output tokens "
      "expected\n",
      decision.decided_ms(), decision.cause(), decision.placements(),
      decision.expected_output_tokens());
  text += CandidateTable(decision) + Margin(decision);
  if (!decision.reason().empty()) text += fmt::format("  chosen because: {}\n", decision.reason());
  return text + Stated(decision);
}

std::string ResidualTable(const v1::RequestOutcome& outcome) {
  static constexpr char kRow[] = "    {:<10} {:>13} {:>12} {:>9} {:>16}\n";
  std::string table =
      fmt::format(kRow, "TERM", "PREDICTED MS", "ACTUAL MS", "OFF BY", "STATED +- MS");
  for (const v1::PredictionResidual& one : outcome.residuals()) {
    std::string stated = "-";
    if (one.interval_ms() > 0) {
      const bool inside = std::abs(one.predicted_ms() - one.actual_ms()) <= one.interval_ms();
      stated = fmt::format("{:.3f} {}", one.interval_ms(), inside ? "in " : "out");
    }
    table += fmt::format(kRow, one.term(), Milliseconds(one.predicted_ms()),
                         Milliseconds(one.actual_ms()),
                         fmt::format("{:+.1f}%", 100 * one.relative()), stated);
  }
  return table;
}

const v1::PredictionResidual* FindResidual(const v1::RequestOutcome& outcome,
                                           std::string_view term) {
  const auto found = std::ranges::find(outcome.residuals(), term, &v1::PredictionResidual::term);
  return found == outcome.residuals().end() ? nullptr : &*found;
}

// The bar of the stage `term`: with its prediction, where one was compared with the outcome, else
// with the reported time alone.
StageBar BarOf(const v1::RequestOutcome& outcome, std::string_view term, double reported_ms) {
  const v1::PredictionResidual* residual = FindResidual(outcome, term);
  if (residual == nullptr) {
    return {.name = term, .predicted_ms = std::nullopt, .actual_ms = reported_ms};
  }
  return {
      .name = term, .predicted_ms = residual->predicted_ms(), .actual_ms = residual->actual_ms()};
}

// The rest of `whole_ms` that no stage accounts for, as a bar of its own.
StageBar RestOf(const std::vector<StageBar>& stages, double whole_ms) {
  for (const StageBar& stage : stages) whole_ms -= stage.actual_ms;
  return {.name = "other", .predicted_ms = std::nullopt, .actual_ms = std::max(0.0, whole_ms)};
}

std::string Picture(const v1::RequestOutcome& outcome, int columns) {
  const v1::ChoiceFinish& finish = outcome.finish();
  const v1::Stages& stages = finish.stages();
  std::vector<StageBar> first = {
      BarOf(outcome, "admission", stages.admission_ms()),
      BarOf(outcome, "queue", stages.queue_ms()),
      BarOf(outcome, "prefill",
            stages.prefill_ms() + stages.transfer_ms() + stages.first_token_ms())};
  const StageBar ttft = BarOf(outcome, "ttft", stages.ttft_ms());
  first.push_back(RestOf(first, ttft.actual_ms));
  const double exposed = finish.kv_bytes().exposed_ms();
  const double after = finish.tpot_ms() * std::max(0, finish.completion_tokens() - 1);
  const std::vector<StageBar> further = {BarOf(outcome, "transfer", exposed),
                                         BarOf(outcome, "decode", std::max(0.0, after - exposed))};
  return DrawBars("to the first token", first, columns) +
         DrawBars("after the first token", further, columns);
}

// How much KV moved, how it was encoded, and how long the transfer took and was expected to take.
std::string KvText(const v1::KvBytes& kv) {
  if (kv.raw() == 0) return "";
  std::string text =
      fmt::format("  KV {} bytes, {} on the wire ({:.2f}x, {}) in {:.3f} ms", kv.raw(), kv.wire(),
                  static_cast<double>(kv.raw()) / static_cast<double>(kv.wire()),
                  kv.codec().empty() ? "raw" : kv.codec(), kv.transfer_ms());
  if (kv.expected_ms() > 0) text += fmt::format(", expected {:.3f} ms by itself", kv.expected_ms());
  return text + "\n";
}

std::string OutcomeText(const v1::RequestOutcome& outcome, int columns) {
  std::string text = fmt::format("ended: {}", outcome.status());
  if (!outcome.has_finish()) return text + "\n";
  const v1::ChoiceFinish& finish = outcome.finish();
  text += fmt::format(
      " on {}, {} output tokens, {} prompt tokens cached, {} evicted, resumed {} times\n"
      "  TTFT {:.3f} ms, TPOT {:.3f} ms, end to end {:.3f} ms\n",
      PlacementName(finish.prefill_worker(), finish.decode_worker()), finish.completion_tokens(),
      outcome.cached_tokens(), outcome.evicted_tokens(), outcome.resumes(),
      finish.stages().ttft_ms(), finish.tpot_ms(), finish.e2e_ms());
  text += KvText(finish.kv_bytes());
  if (!outcome.not_compared().empty()) {
    text += fmt::format("  no prediction to compare with: {}\n", outcome.not_compared());
  } else {
    text += "  from the decision on its workers:\n" + ResidualTable(outcome);
  }
  return text + Picture(outcome, columns);
}

std::string SloText(double ms) { return ms > 0 ? fmt::format("{:.4g} ms", ms) : "none"; }

}  // namespace

std::string ExplanationText(const v1::RequestExplanation& request, int columns) {
  std::string text = fmt::format(
      "request {} of {} ago, policy {}, wanted route {}\n"
      "  {} prompt tokens, at most {} output tokens, {} sequences, SLO: TTFT {}, TPOT {}\n",
      request.request_id(), Age(request.age_ms()), request.policy(), Name(request.wanted()),
      request.prompt_tokens(), request.max_tokens(), request.sequences(),
      SloText(request.ttft_slo_ms()), SloText(request.tpot_slo_ms()));
  for (int i = 0; i < request.decisions_size(); ++i) {
    if (i == 1 && request.decisions_left_out() > 0) {
      text += fmt::format("({} decisions are not kept)\n", request.decisions_left_out());
    }
    text += DecisionText(request.decisions(i));
  }
  if (!request.has_outcome()) return text + "still in flight\n";
  return text + OutcomeText(request.outcome(), columns);
}

std::string ExplanationList(const v1::ExplainResponse& response) {
  static constexpr char kRow[] =
      "{:<32} {:>8} {:>7} {:>7} {:<28} {:>9} {:>9} {:>9} {:>10} {:>10} {}\n";
  std::string table =
      fmt::format(kRow, "REQUEST", "AGE", "PROMPT", "OUTPUT", "PLACEMENT", "DECISIONS", "TTFT MS",
                  "PREDICTED", "E2E MS", "PREDICTED", "STATUS");
  for (const v1::RequestExplanation& request : response.requests()) {
    const v1::ChoiceFinish& finish = request.outcome().finish();
    const v1::PlacementCandidate* chosen =
        request.decisions().empty() ? nullptr : ChosenOf(*request.decisions().rbegin());
    const bool ended = request.outcome().has_finish();
    const bool predicted = chosen != nullptr && chosen->has_predicted();
    const auto actual = [ended](double ms) { return ended ? Milliseconds(ms) : "-"; };
    const auto guess = [predicted](double ms) { return predicted ? Milliseconds(ms) : "-"; };
    const v1::Prediction& prediction =
        predicted ? chosen->predicted() : v1::Prediction::default_instance();
    table += fmt::format(
        kRow, request.request_id(), Age(request.age_ms()), request.prompt_tokens(),
        finish.completion_tokens(), chosen == nullptr ? "-" : PlacementName(*chosen),
        request.decisions_size() + request.decisions_left_out(), actual(finish.stages().ttft_ms()),
        guess(prediction.ttft_ms()), actual(finish.e2e_ms()), guess(prediction.e2e_ms()),
        request.has_outcome() ? request.outcome().status() : "in flight");
  }
  return table;
}

}  // namespace tandem
