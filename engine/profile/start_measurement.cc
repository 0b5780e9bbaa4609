#include "engine/profile/start_measurement.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

constexpr int32_t kLeastRepeats = 3;
constexpr int32_t kMostRepeats = 8;
// The largest mean error of a model that is used: decisions that rest on a worse one would be worse
// than decisions without a model.
constexpr double kMostError = 0.5;

int32_t Rows(const PlannedStep& step) { return step.shape.prefill_tokens + step.shape.sequences; }

}  // namespace

StartMeasurement::StartMeasurement(std::vector<PlannedStep> plan, const Bounds& bounds, RunStep run)
    : max_ms_(ToMilliseconds(bounds.time)),
      max_step_ms_(ToMilliseconds(bounds.step)),
      run_(std::move(run)) {
  std::stable_sort(plan.begin(), plan.end(),
                   [](const PlannedStep& a, const PlannedStep& b) { return Rows(a) < Rows(b); });
  for (PlannedStep& step : plan) steps_.push_back({.planned = step, .ms = {}});
}

bool StartMeasurement::Continue() {
  if (!status_.ok() || ToMilliseconds(took_) >= max_ms_) return false;
  if (next_ == steps_.size() && !NextRound()) return false;
  Step& step = steps_[next_];
  if (round_ == 0 && TakesTooLong(step)) {
    steps_.resize(next_);
    return Continue();
  }
  const absl::StatusOr<Duration> took = run_(step.planned.shape);
  if (!took.ok()) {
    status_ = took.status();
    return false;
  }
  ++next_;
  ++runs_;
  took_ += *took;
  const double ms = ToMilliseconds(*took);
  if (round_ > 0) {
    step.ms.push_back(ms);
  } else {
    committed_ms_ += kLeastRepeats * ms;
    ms_per_row_ = ms / Rows(step.planned);
  }
  return true;
}

bool StartMeasurement::NextRound() {
  if (steps_.empty() || round_ == kMostRepeats) return false;
  ++round_;
  next_ = 0;
  std::shuffle(steps_.begin(), steps_.end(), random_);
  return true;
}

// Whether a step would break a bound. It is expected to take as long per row as the latest, smaller
// step. The time per row does not grow with the number of rows, so this errs on the safe side.
bool StartMeasurement::TakesTooLong(const Step& step) const {
  const double expected_ms = ms_per_row_ * Rows(step.planned);
  return expected_ms > max_step_ms_ ||
         ToMilliseconds(took_) + committed_ms_ + (1 + kLeastRepeats) * expected_ms > max_ms_;
}

absl::StatusOr<StepFit> StartMeasurement::Fit() const {
  RETURN_IF_ERROR(status_);
  std::vector<StepSample> samples;
  for (const Step& step : steps_) {
    if (std::ssize(step.ms) < kLeastRepeats) {
      return FailedPrecondition("{} runs of steps in {:.0f} ms were too few", runs_,
                                ToMilliseconds(took_));
    }
    samples.push_back(
        {.features = step.planned.shape.features(), .use = step.planned.use, .ms = step.ms});
  }
  absl::StatusOr<StepFit> fit = FitSteps(samples, 1);
  if (!fit.ok()) return FailedPrecondition("{}", std::string(fit.status().message()));
  const double error = MeanError(fit->held_out);
  if (!(error > kMostError)) return fit;
  return FailedPrecondition(
      "the model that was measured mispredicts other steps by {:.0f}% on average, more than "
      "{:.0f}%, probably because the machine was busy with other work",
      100 * error, 100 * kMostError);
}

}  // namespace tandem
