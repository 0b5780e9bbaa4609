#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "base/dtype.h"
#include "base/kv_row.h"
#include "base/status.h"
#include "router/policy/classic_model.h"
#include "router/policy/policies.h"

namespace tandem {
namespace {

// From this many sequences at the decode worker on, the original (nanoPD) takes the unified worker.
constexpr int32_t kMostDecoding = 20;

// The bytes of KV of one token. A double, because the product of what a worker reports may be too
// large for an integer.
double KvBytesPerToken(const v1::KvLayout& layout) {
  const std::optional<DType> dtype = DTypeFromName(layout.dtype());
  if (!dtype) return 0;
  return 1.0 * layout.num_layers() * layout.num_kv_heads() *
         static_cast<double>(KvHeadBytes(*dtype, layout.head_dim()));
}

// Chooses by the formulas of ClassicModel, as a baseline. The original, nanoPD, knows one worker of
// each kind: the load of its unified worker includes what the decode worker has. Here it includes
// what the decode worker with the fewest sequences has.
class ClassicPolicy final : public RoutingPolicy {
 public:
  explicit ClassicPolicy(const ClassicCoefficients& coefficients) : coefficients_(coefficients) {}

 protected:
  void Begin(const Candidates& candidates, const RouteQuery& query) override {
    can_unify_ = candidates.can_unify() && !query.prompt_at;
    least_decoding_ = std::numeric_limits<int32_t>::max();
    for (const Candidate& one : candidates.decode) {
      least_decoding_ = std::min(least_decoding_, one.worker->Sequences());
    }
    if (candidates.decode.empty()) least_decoding_ = 0;
  }

  // Ranks prefill workers by load alone, because the formulas do not tell them apart.
  double Rank(const Candidate& candidate, const RouteQuery&) const override {
    const WorkerView& worker = *candidate.worker;
    return worker.role == v1::WORKER_ROLE_PREFILL
               ? static_cast<double>(worker.PendingPromptTokens())
               : worker.Sequences();
  }

  PlacementScore Score(const Placement& placement, const RouteQuery& query) const override {
    ClassicCoefficients coefficients = coefficients_;
    coefficients.bytes_per_token = KvBytesPerToken(placement.prefill->info->layout);
    const ClassicModel model(coefficients);
    const double output = std::max(1.0, std::round(query.expected_output_tokens));
    PlacementScore score = {.unit = PlacementScore::Unit::kMilliseconds};
    if (placement.decode == nullptr) {
      const double load = placement.prefill->Sequences() + least_decoding_;
      score.cost = model.Unified(query.prompt_tokens, output, load);
      score.features = {{"output_tokens", output}, {"system_load", load}};
      return score;
    }
    const int32_t decoding = placement.decode->Sequences();
    if (can_unify_ && decoding >= kMostDecoding) {
      score.ineligible =
          fmt::format("{} has {} sequences, and from {} on the unified worker is taken",
                      placement.decode->id.name, decoding, kMostDecoding);
    }
    score.cost = model.Disaggregated(query.prompt_tokens, output, decoding + 1);
    score.features = {{"output_tokens", output}, {"decode_batch", static_cast<double>(decoding)}};
    return score;
  }

 private:
  const ClassicCoefficients coefficients_;
  bool can_unify_ = false;
  int32_t least_decoding_ = 0;
};

}  // namespace

std::unique_ptr<RoutingPolicy> NewClassicPolicy(const ClassicCoefficients& coefficients) {
  return std::make_unique<ClassicPolicy>(coefficients);
}

}  // namespace tandem
