#include "engine/profile/measure_steps.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/status.h"

namespace tandem {
namespace {

class Measurement {
 public:
  Measurement(const MeasureOptions& options,
              const std::function<absl::StatusOr<Duration>(const StepShape&)>& run,
              const std::function<void(int64_t, int64_t)>& progress)
      : options_(options), run_(run), progress_(progress), random_(options.seed) {}

  absl::StatusOr<std::vector<MeasuredStep>> MeasureAll(std::span<const PlannedStep> plan) {
    for (const PlannedStep& step : plan) {
      MeasuredStep& measured = steps_.emplace_back();
      measured.step = step;
      measured.sample = {.features = step.shape.features(), .use = step.use, .ms = {}};
    }
    std::vector<size_t> due(plan.size());
    std::iota(due.begin(), due.end(), size_t{0});
    for (int32_t attempt = 0; attempt < options_.attempts && !due.empty(); ++attempt) {
      if (attempt > 0 && took_ + ExpectedTime(due) > options_.max_time) break;
      total_ += static_cast<int64_t>(due.size()) * (options_.warm_ups + options_.repeats);
      RETURN_IF_ERROR(Attempt(due));
      std::erase_if(due, [this](size_t i) { return !steps_[i].noisy; });
    }
    return std::move(steps_);
  }

 private:
  absl::Status Attempt(std::vector<size_t> due) {
    std::vector<std::vector<double>> ms(steps_.size());
    for (int32_t round = 0; round < options_.warm_ups + options_.repeats; ++round) {
      std::shuffle(due.begin(), due.end(), random_);
      for (const size_t i : due) {
        ASSIGN_OR_RETURN(const Duration took, run_(steps_[i].step.shape));
        took_ += took;
        if (round >= options_.warm_ups) ms[i].push_back(ToMilliseconds(took));
        progress_(++done_, total_);
      }
    }
    for (const size_t i : due) {
      std::vector<double>& best = steps_[i].sample.ms;
      if (best.empty() || RelativeSpread(ms[i]) < RelativeSpread(best)) best = std::move(ms[i]);
      steps_[i].noisy = RelativeSpread(best) > options_.accepted_spread;
    }
    return absl::OkStatus();
  }

  Duration ExpectedTime(const std::vector<size_t>& due) const {
    double ms = 0;
    for (const size_t i : due) ms += MedianMs(steps_[i].sample.ms);
    return std::chrono::duration_cast<Duration>(
        ModelTime(ms * (options_.warm_ups + options_.repeats)));
  }

  const MeasureOptions& options_;
  const std::function<absl::StatusOr<Duration>(const StepShape&)>& run_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::mt19937_64 random_;
  std::vector<MeasuredStep> steps_;
  Duration took_{};
  int64_t done_ = 0;
  int64_t total_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<MeasuredStep>> MeasureSteps(
    std::span<const PlannedStep> plan, const MeasureOptions& options,
    const std::function<absl::StatusOr<Duration>(const StepShape&)>& run,
    const std::function<void(int64_t done, int64_t total)>& progress) {
  return Measurement(options, run, progress).MeasureAll(plan);
}

}  // namespace tandem
