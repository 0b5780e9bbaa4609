#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "router/policy/objective.h"
#include "router/policy/placement_predictor.h"
#include "router/policy/policies.h"
#include "router/policy/worker_load.h"

namespace tandem {
namespace {

using Basis = RouteDecision::Basis;

// The cost of placements without a prediction: above every cost that can be predicted, so that they
// come last.
constexpr double kUnpredictedMs = 1e15;
// A gain below this share of the request's time is not worth another placement.
constexpr double kLeastGain = 0.01;
// Requests change to another route than similar ones took last only for a gain of this multiple of
// the least error of their time. What a class of requests adds to the queues on its own route would
// otherwise drive it to the other route and back.
constexpr double kTurn = 2;
// However wrong predictions may be, no placement is kept that is predicted to cost so much more
// than the cheapest, as a share of the latter.
constexpr double kMostGain = 0.1;

// Predicts what each placement costs and takes the one with the lowest cost, unless the gain over
// the least loaded one is within the error of the prediction. Requests with about as long a prompt
// keep their route until another one gains more than that.
class AutoPolicy final : public RoutingPolicy {
 public:
  explicit AutoPolicy(const PolicyParts& parts)
      : options_(parts.options), errors_(parts.errors), predictor_(parts.ledger, parts.errors) {}

 protected:
  void Begin(const Candidates& candidates, const RouteQuery&) override {
    const std::string worker = PlacementPredictor::WithoutCosts(candidates);
    not_measured_ =
        worker.empty() ? "" : fmt::format("{} has not reported what its steps cost", worker);
  }

  double Rank(const Candidate& candidate, const RouteQuery& query) const override {
    if (!not_measured_.empty()) return LoadOf(*candidate.worker);
    return RoughMs(*candidate.worker, query);
  }

  void Prepare(std::span<const Placement> placements, const RouteQuery& query) override {
    if (!not_measured_.empty()) return;
    predictor_.Prepare(placements, query);
    worker_errors_.clear();
    for (const Placement& placement : placements) {
      for (const WorkerView* const worker : {placement.prefill, placement.decode}) {
        if (worker == nullptr) continue;
        const auto [at, is_new] = worker_errors_.try_emplace(worker);
        if (is_new) at->second = ErrorOf(*worker);
      }
    }
    SetNotMeasured(placements);
    const auto is_unified = [](const Placement& placement) {
      return placement.route() == v1::ROUTE_UNIFIED;
    };
    has_choice_ =
        std::ranges::any_of(placements, is_unified) && !std::ranges::all_of(placements, is_unified);
  }

  PlacementScore Score(const Placement& placement, const RouteQuery& query) const override {
    if (!not_measured_.empty()) return {.cost = LoadOf(placement)};
    PlacementScore score{.cost = kUnpredictedMs, .unit = PlacementScore::Unit::kMilliseconds};
    std::optional<PlacementPrediction> prediction = predictor_.Predict(placement);
    if (!prediction) return score;
    const PlacementCost cost =
        CostOf(*prediction, query.slo, query.expected_output_tokens, ErrorOf(placement));
    // Costs that a worker reports may be finite and yet too large to be added up.
    if (!(cost.total_ms() < kUnpredictedMs)) return score;
    score.prediction = std::move(prediction);
    score.cost = cost.total_ms();
    score.features = {{"latency_ms", cost.latency_ms},
                      {"externality_ms", cost.externality_ms},
                      {"slo_ms", cost.slo_ms},
                      {"others_slo_ms", cost.others_slo_ms}};
    return score;
  }

  Verdict Pick(std::span<const Option> options, const RouteQuery& query) const override {
    if (!not_measured_.empty()) {
      return {.basis = Basis::kNotMeasured, .reason = "least loaded, because " + not_measured_};
    }
    return Compare(options, ReferenceOf(options, query));
  }

  void OnTaken(const RouteDecision& decision, const RouteQuery& query) override {
    // Where only one route is possible or wanted, nothing is learnt of the other one.
    if (has_choice_ && not_measured_.empty()) routes_[ClassOf(query)] = decision.route;
  }

 private:
  // Sets not_measured_ where there are pairs of workers and no link between any pair was measured.
  void SetNotMeasured(std::span<const Placement> placements) {
    const Placement* unlinked = nullptr;
    for (const Placement& placement : placements) {
      if (placement.decode == nullptr) continue;
      if (predictor_.HasLink(placement)) return;
      unlinked = &placement;
    }
    if (unlinked == nullptr) return;
    not_measured_ = fmt::format("no link for KV was measured, such as from {} to {}",
                                unlinked->prefill->id.name, unlinked->decode->id.name);
  }

  static constexpr size_t kClasses = 32;
  // The class of a request by the length of its prompt: 1 token, 2 to 3, 4 to 7, and so on.
  static size_t ClassOf(const RouteQuery& query) {
    return std::bit_width(static_cast<uint32_t>(std::max(query.prompt_tokens, 1))) - 1;
  }

  // What the request roughly costs at the worker, whatever the order of its queue: enough for a
  // shortlist.
  static double RoughMs(const WorkerView& worker, const RouteQuery& query) {
    const StepModel& steps = worker.costs->steps;
    double ms = 0;
    if (worker.role != v1::WORKER_ROLE_DECODE) {
      const auto uncached = query.prompt_tokens - query.CachedTokens(worker.id);
      const auto pending = worker.PendingPromptTokens() + uncached;
      ms += steps.coefficients().alpha.token_ms * static_cast<double>(pending);
    }
    if (worker.role != v1::WORKER_ROLE_PREFILL) {
      const auto context = worker.load->decode_context_tokens() + query.prompt_tokens;
      ms += query.expected_output_tokens *
            steps.StepMs(0, 0, worker.Sequences() + query.sequences, static_cast<double>(context));
    }
    return ms;
  }

  // The largest known error of predictions for a worker: that of its steps, and that of recent
  // requests there.
  double ErrorOf(const WorkerView& worker) const {
    double error = std::max(options_.least_error, worker.costs->error);
    if (errors_ == nullptr) return error;
    const auto add = [&](PredictionTerm term) {
      error = std::max(error, errors_->OfWorker(term, worker.id).value_or(0));
    };
    if (worker.role != v1::WORKER_ROLE_DECODE) add(PredictionTerm::kTtft);
    if (worker.role != v1::WORKER_ROLE_PREFILL) add(PredictionTerm::kE2e);
    return error;
  }
  double ErrorOf(const Placement& placement) const {
    const double error = worker_errors_.at(placement.prefill);
    return placement.decode == nullptr ? error
                                       : std::max(error, worker_errors_.at(placement.decode));
  }

  // The gain in ms that `other` must exceed to be taken instead of `reference`.
  double MarginMs(const Option& reference, const Option& other) const {
    const auto& a = reference.score.prediction;
    const auto& b = other.score.prediction;
    if (!a || !b) return 0;
    const double error = std::max(ErrorOf(reference.placement), ErrorOf(other.placement));
    const bool turns = reference.placement.route() != other.placement.route();
    const double least = (turns ? std::max(kLeastGain, kTurn * options_.least_error) : kLeastGain) *
                         std::min(LatencyMs(a->ttft, a->e2e), LatencyMs(b->ttft, b->e2e));
    const double most = std::max(least, kMostGain * other.score.cost);
    return std::clamp(DifferenceErrorMs(*a, *b, error), least, most);
  }

  static double Gain(const Option& over, const Option& of) {
    return over.score.cost - of.score.cost;
  }

  // The least loaded option, of `route` where one is given; among equals the cheapest.
  static size_t LeastLoaded(std::span<const Option> options, std::optional<v1::Route> route) {
    size_t least = options.size();
    double load = 0;
    for (size_t i = 0; i < options.size(); ++i) {
      if (route && options[i].placement.route() != *route) continue;
      const double of_this = LoadOf(options[i].placement);
      if (least < options.size() && of_this >= load) continue;
      least = i;
      load = of_this;
    }
    return least;
  }

  static bool IsWhereItWaits(const Placement& placement, const RouteQuery& query) {
    const auto waits_at = [&query](const WorkerView* worker) {
      return worker == nullptr || query.WaitingAt(worker->id) != nullptr;
    };
    return waits_at(placement.prefill) && waits_at(placement.decode);
  }

  // The option that the cheapest one must beat: where the request waits already, or else the least
  // loaded one of the route that requests like it take.
  size_t ReferenceOf(std::span<const Option> options, const RouteQuery& query) const {
    if (!query.waits_at.empty()) {
      const auto waits = std::ranges::find_if(options, [&query](const Option& option) {
        return IsWhereItWaits(option.placement, query);
      });
      if (waits != options.end()) return static_cast<size_t>(waits - options.begin());
    }
    const size_t reference =
        LeastLoaded(options, has_choice_ ? routes_[ClassOf(query)] : std::nullopt);
    // No placement of the preferred route is possible any more.
    return reference < options.size() ? reference : LeastLoaded(options, std::nullopt);
  }

  Verdict Compare(std::span<const Option> options, size_t reference) const {
    const double gain = Gain(options[reference], options.front());
    const double margin = MarginMs(options[reference], options.front());
    if (gain > margin) return {};
    if (reference == 0) return {};
    return {
        .option = reference,
        .basis = Basis::kWithinError,
        .reason = fmt::format("the cheapest placement would gain {:.1f} ms, and a gain of up to "
                              "{:.1f} ms is within the error of the prediction",
                              gain, margin)};
  }

  const PolicyOptions options_;
  const PredictionErrors* const errors_;  // may be null
  PlacementPredictor predictor_;
  std::string not_measured_;  // why the present decision cannot predict; empty: it can
  bool has_choice_ = false;   // the present decision is between both routes
  absl::flat_hash_map<const WorkerView*, double> worker_errors_;  // for the present decision
  std::array<std::optional<v1::Route>, kClasses> routes_;         // the route taken last, by class
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewAutoPolicy(const PolicyParts& parts) {
  return std::make_unique<AutoPolicy>(parts);
}

}  // namespace tandem
