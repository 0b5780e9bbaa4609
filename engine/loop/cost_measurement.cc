#include "engine/loop/cost_measurement.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "engine/profile/step_plan.h"

namespace tandem {
namespace {

constexpr int32_t kMostSequences = 16;
constexpr int32_t kMostContext = 512;

// On a slow or busy machine the first attempt, which delays the start, may not suffice. Each
// further attempt is made while the engine is idle, and may take twice as long as the one before.
constexpr int32_t kMostAttempts = 4;
// A request that arrives during a measured step waits for the step's end. So in every attempt a
// step may take at most 1 / kLeastSteps of the time of the first attempt.
constexpr int32_t kLeastSteps = 4;

// The largest steps to measure: as large as the engine's steps may be, with KV in at most half of
// its pool.
StepLimits LimitsOf(const EngineOptions& options) {
  const SchedulerOptions& scheduler = options.scheduler;
  const int32_t block_tokens = options.layout.block_tokens;
  StepLimits limits;
  limits.max_step_tokens = std::min(scheduler.max_step_tokens, options.max_context_tokens / 2);
  // Leaves room in a step for the prompt that is prefilled beside the decodes.
  limits.max_sequences =
      std::min({kMostSequences, scheduler.max_sequences - 1, limits.max_step_tokens / 2});
  const int64_t pool_tokens = int64_t{options.num_blocks} * block_tokens;
  const int64_t affordable =
      (pool_tokens / 2 - limits.max_step_tokens) / (std::max(limits.max_sequences, 0) + 1);
  const int64_t context = std::min<int64_t>(
      {kMostContext, options.max_context_tokens - limits.max_step_tokens, affordable});
  limits.max_context_tokens = static_cast<int32_t>(context / block_tokens * block_tokens);
  return limits;
}

}  // namespace

CostMeasurement::CostMeasurement(const EngineOptions& options, const DummySteps::Parts& parts,
                                 StepCosts& costs)
    : options_(options),
      parts_(parts),
      costs_(costs),
      done_(options.costs.measure_for <= Duration::zero() || options.costs.steps) {}

bool CostMeasurement::Continue() {
  if (!pending()) return false;
  if (!steps_) {
    Begin();
  } else if (!measurement_->Continue()) {
    Finish();
  }
  return true;
}

void CostMeasurement::Begin() {
  const StepLimits limits = LimitsOf(options_);
  if (limits.max_sequences < 1 || limits.max_context_tokens < kLeastMeasuredContext) {
    LogInfo(
        "cost model: steps of {} sequences with {} tokens of context tell too little, it is "
        "learned while serving",
        limits.max_sequences, limits.max_context_tokens);
    done_ = true;
    return;
  }
  auto steps = DummySteps::Create(limits, parts_);
  if (!steps.ok()) {
    LogWarn("cost model: not measured: {}", steps.status().ToString());
    done_ = true;
    return;
  }
  steps_ = *std::move(steps);
  if (measurement_) return;  // a measurement that was paused continues
  const Duration first = options_.costs.measure_for;
  measurement_.emplace(
      PlanSteps(limits, PlanSize::kStart, 1),
      StartMeasurement::Bounds{.time = first * (1 << attempts_), .step = first / kLeastSteps},
      [this](const StepShape& shape) { return steps_->Run(shape); });
}

void CostMeasurement::Pause() {
  if (!pending()) return;
  paused_ = true;
  steps_.reset();
  if (measurement_ && Adopt().ok()) return;
  LogInfo(
      "cost model: a request came before all was measured, the rest is measured when it is quiet");
}

void CostMeasurement::Resume() {
  if (done_ || !paused_) return;
  done_ = costs_.state().model != nullptr;
  // Only free blocks are used: a prefix cache that requests have left is worth more than a cost
  // model that is measured earlier.
  const int64_t blocks = DummySteps::Blocks(LimitsOf(options_), options_.layout.block_tokens);
  paused_ = parts_.store.stats().free_blocks < blocks;
}

absl::Status CostMeasurement::Adopt() {
  ASSIGN_OR_RETURN(StepFit fit, measurement_->Fit());
  const double error = MeanError(fit.held_out);
  RETURN_IF_ERROR(costs_.SetModel(std::move(fit.coefficients), CostSource::kMeasured, error));
  done_ = true;
  const StepModel& model = *costs_.state().model;
  LogInfo("cost model measured steps={} took_ms={:.0f} alpha_ms={:.4f} beta_ms={:.3f} error={:.3f}",
          measurement_->num_runs(), ToMilliseconds(measurement_->took()),
          model.coefficients().alpha.token_ms, Beta(model).count(), costs_.state().error);
  return absl::OkStatus();
}

void CostMeasurement::Finish() {
  steps_.reset();
  const absl::Status status = Adopt();
  if (status.ok()) return;
  const bool again = absl::IsFailedPrecondition(status) && ++attempts_ < kMostAttempts;
  LogInfo("cost model: not measured, {}: {}",
          again ? "this is tried again when it is quiet" : "it is learned while serving",
          std::string(status.message()));
  measurement_.reset();
  paused_ = again;
  done_ = !again;
}

}  // namespace tandem
