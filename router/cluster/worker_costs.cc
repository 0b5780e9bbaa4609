#include "router/cluster/worker_costs.h"

#include <cmath>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

constexpr int kMostBuckets = 64;
constexpr int kMostGridPoints = 64;  // along one axis

absl::Status CheckSize(const char* field, int size, int most) {
  if (size <= most) return absl::OkStatus();
  return InvalidArgument("load.cost.{} has {} entries; at most {} are taken", field, size, most);
}

absl::Status CheckSizes(const v1::CostModel& report) {
  RETURN_IF_ERROR(CheckSize("beta.buckets", report.beta().buckets_size(), kMostBuckets));
  RETURN_IF_ERROR(CheckSize("gamma.tokens", report.gamma().tokens_size(), kMostGridPoints));
  RETURN_IF_ERROR(CheckSize("gamma.sequences", report.gamma().sequences_size(), kMostGridPoints));
  return CheckSize("gamma.context", report.gamma().context_size(), kMostGridPoints);
}

DecodeCost ReadBeta(const v1::DecodeCost& report) {
  DecodeCost beta{.buckets = {},
                  .sequence_ms = report.sequence_ms(),
                  .context_token_ms = report.context_token_ms()};
  for (const v1::DecodeCost::Bucket& bucket : report.buckets()) {
    beta.buckets.push_back({.max_sequences = bucket.max_sequences(), .base_ms = bucket.base_ms()});
  }
  return beta;
}

InterferenceGrid ReadGamma(const v1::InterferenceGrid& report) {
  return {.tokens = {report.tokens().begin(), report.tokens().end()},
          .sequences = {report.sequences().begin(), report.sequences().end()},
          .context = {report.context().begin(), report.context().end()},
          .gamma_ms = {report.gamma_ms().begin(), report.gamma_ms().end()}};
}

StepCoefficients ReadCoefficients(const v1::CostModel& report) {
  StepCoefficients coefficients{.alpha = {.floor_ms = report.alpha().floor_ms(),
                                          .base_ms = report.alpha().base_ms(),
                                          .token_ms = report.alpha().token_ms(),
                                          .pair_ms = report.alpha().pair_ms()},
                                .beta = ReadBeta(report.beta()),
                                .gamma = ReadGamma(report.gamma()),
                                .batch_thresh = std::nullopt};
  if (report.has_batch_thresh()) {
    const v1::StepKnee& knee = report.batch_thresh();
    coefficients.batch_thresh = {.tokens = knee.tokens(), .low = knee.low(), .high = knee.high()};
  }
  return coefficients;
}

}  // namespace

absl::Status CheckError(double error) {
  if (std::isfinite(error) && error >= 0) return absl::OkStatus();
  return InvalidArgument("load.cost.error={} must be finite and not negative", error);
}

absl::StatusOr<std::shared_ptr<const WorkerCosts>> ReadCosts(const v1::CostModel& report) {
  RETURN_IF_ERROR(CheckSizes(report));
  RETURN_IF_ERROR(CheckError(report.error()));
  absl::StatusOr<StepModel> steps = StepModel::Create(ReadCoefficients(report));
  RETURN_IF_ERROR(Annotate(steps.status(), "load.cost"));
  return std::make_shared<const WorkerCosts>(WorkerCosts{.steps = *std::move(steps),
                                                         .source = report.source(),
                                                         .revision = report.revision(),
                                                         .error = report.error()});
}

v1::CostModel ToReport(const StepCoefficients& coefficients) {
  v1::CostModel report;
  v1::PrefillCost& alpha = *report.mutable_alpha();
  alpha.set_floor_ms(coefficients.alpha.floor_ms);
  alpha.set_base_ms(coefficients.alpha.base_ms);
  alpha.set_token_ms(coefficients.alpha.token_ms);
  alpha.set_pair_ms(coefficients.alpha.pair_ms);
  v1::DecodeCost& beta = *report.mutable_beta();
  for (const DecodeCost::Bucket& bucket : coefficients.beta.buckets) {
    v1::DecodeCost::Bucket& reported = *beta.add_buckets();
    reported.set_max_sequences(bucket.max_sequences);
    reported.set_base_ms(bucket.base_ms);
  }
  beta.set_sequence_ms(coefficients.beta.sequence_ms);
  beta.set_context_token_ms(coefficients.beta.context_token_ms);
  if (const InterferenceGrid& grid = coefficients.gamma; !grid.empty()) {
    v1::InterferenceGrid& gamma = *report.mutable_gamma();
    gamma.mutable_tokens()->Add(grid.tokens.begin(), grid.tokens.end());
    gamma.mutable_sequences()->Add(grid.sequences.begin(), grid.sequences.end());
    gamma.mutable_context()->Add(grid.context.begin(), grid.context.end());
    gamma.mutable_gamma_ms()->Add(grid.gamma_ms.begin(), grid.gamma_ms.end());
  }
  if (coefficients.batch_thresh) {
    v1::StepKnee& knee = *report.mutable_batch_thresh();
    knee.set_tokens(coefficients.batch_thresh->tokens);
    knee.set_low(coefficients.batch_thresh->low);
    knee.set_high(coefficients.batch_thresh->high);
  }
  return report;
}

}  // namespace tandem
