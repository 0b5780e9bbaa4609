#include "scheduler/latency_model/step_costs.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "base/status.h"

namespace tandem {
namespace {

// The first steps of a process find caches, pages and threads cold, and do not count.
constexpr uint64_t kColdSteps = 8;
constexpr size_t kWindow = 32;      // number of steps of one kind that are compared with the model
constexpr size_t kLeastSteps = 16;  // steps of a window before it may change the model
constexpr int32_t kCheckEvery = 4;  // number of steps of one kind between two checks
// The thresholds for a change of the mean ratio of measured to predicted time: it must be off by
// more than kLeastChange, and by more than kStandardErrors of its standard errors.
constexpr double kLeastChange = 0.02;
constexpr double kStandardErrors = 2.0;
// The thresholds for a jump of a window: its median must be off by more than kLeastJump, and by
// more than kJumpErrors of its standard errors, and its mean by more than kLeastMeanJump.
constexpr double kLeastJump = 0.25;
constexpr double kJumpErrors = 4.0;
constexpr double kLeastMeanJump = 0.1;
// A kind of steps that ran within this much step time is part of the present load: it will run
// again soon and show by itself whether it has changed. A kind that did not may not run for long;
// it is assumed to have jumped alike, because the cause mostly is the machine, which both kinds
// share.
constexpr Duration kLately = std::chrono::seconds(2);
// The number of steps that are kept of a kind which is assumed to have jumped: few, so that new
// steps soon outweigh them.
constexpr size_t kAssumed = 8;
// The least step time between two revisions of a model: each one costs every router a new model.
constexpr Duration kLeastTimeBetweenRevisions = std::chrono::milliseconds(200);

// The number of steps of each kind before a model is learned from them.
constexpr uint64_t kLeastLearned = 24;

constexpr double kLatest = 1.0 / 64;  // weight of a new step in the running error and drift
constexpr double kMostRatio = 4.0;    // ratios are cut to [1 / kMostRatio, kMostRatio]

double Median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double PredictedMs(const StepModel& model, const StepFeatures& features) {
  return std::max(model.Step(features).count(), 1e-9);
}

double RatioOf(const StepModel& model, const TimedStep& step) {
  return step.ms / PredictedMs(model, step.features);
}

double RelativeError(double ratio) { return std::abs(1.0 / ratio - 1.0); }

StepCoefficients Scaled(StepCoefficients c, double prefill, double decode) {
  for (double* ms : {&c.alpha.floor_ms, &c.alpha.base_ms, &c.alpha.token_ms, &c.alpha.pair_ms}) {
    *ms *= prefill;
  }
  for (double& ms : c.gamma.gamma_ms) ms *= prefill;
  for (DecodeCost::Bucket& bucket : c.beta.buckets) bucket.base_ms *= decode;
  c.beta.sequence_ms *= decode;
  c.beta.context_token_ms *= decode;
  return c;
}

}  // namespace

absl::Status StepCosts::SetModel(StepCoefficients coefficients, CostSource source, double error) {
  ASSIGN_OR_RETURN(StepModel model, StepModel::Create(std::move(coefficients)));
  for (Window& window : windows_) window = {};
  decode_shape_.emplace(model);
  Adopt(std::move(model), source);
  state_.error = error;
  return absl::OkStatus();
}

void StepCosts::Observe(const StepFeatures& features, Duration took) {
  const TimedStep step = {.features = features, .ms = ToMilliseconds(took)};
  if (++seen_ <= kColdSteps || !(step.ms > 0)) return;
  const bool learns = state_.model == nullptr || state_.source == CostSource::kLearned;
  if (learns) learner_.ObserveStep(features, took);
  ran_ += took;
  since_revision_ += took;
  const Kind kind = features.prefill_tokens > 0 ? kPrefill : kDecode;
  ++seen_of_[kind];
  const double ratio = state_.model != nullptr ? RatioOf(*state_.model, step) : 1.0;
  if (state_.model != nullptr) Count(ratio);
  Remember(step, ratio);
  if (state_.model == nullptr) return Learn();
  if (++windows_[kind].since_check < kCheckEvery) return;
  windows_[kind].since_check = 0;
  Refine(kind);
}

// Adds the ratio of measured to predicted time of one step to error and drift. A step that was held
// up for long is cut to kMostRatio; otherwise it would make the means useless for a long time.
void StepCosts::Count(double ratio) {
  ratio = std::clamp(ratio, 1 / kMostRatio, kMostRatio);
  state_.error += kLatest * (RelativeError(ratio) - state_.error);
  state_.drift = state_.drift > 0 ? state_.drift + kLatest * (ratio - state_.drift) : ratio;
  ++state_.steps;
}

void StepCosts::Remember(const TimedStep& step, double ratio) {
  Window& window = windows_[step.features.prefill_tokens > 0 ? kPrefill : kDecode];
  window.steps.push_back({.step = step, .ratio = ratio});
  window.latest = ran_;
  if (state_.model != nullptr) window.pace.Add(step.ms, window.steps.back().predicted_ms());
  if (window.steps.size() > kWindow) window.steps.pop_front();
  if (decode_shape_ && step.features.prefill_tokens == 0) decode_shape_->Observe(step);
}

bool StepCosts::HasNotRunLately(const Window& window) const {
  return window.steps.empty() || ran_ - window.latest > kLately;
}

bool StepCosts::LearnerKnowsEnough() const {
  return (!kinds_.prefills || seen_of_[kPrefill] >= kLeastLearned) &&
         (!kinds_.decodes || seen_of_[kDecode] >= kLeastLearned);
}

void StepCosts::Learn() {
  if (!LearnerKnowsEnough()) return;
  std::optional<StepModel> learned = learner_.steps();
  if (!learned) return;
  learned_at_ = seen_;
  Adopt(*std::move(learned), CostSource::kLearned);
}

void StepCosts::Refine(Kind kind) {
  std::optional<StepModel> better;
  if (since_revision_ >= kLeastTimeBetweenRevisions) {
    better = Rescaled(kind);
    if (kind == kDecode && decode_shape_) {
      std::optional<StepModel> reshaped = Reshaped(better ? *better : *state_.model);
      if (reshaped) better = std::move(reshaped);
    }
  }
  const bool learns = state_.source == CostSource::kLearned;
  if (learns && (better || seen_ >= 2 * learned_at_)) {
    learned_at_ = seen_;
    std::optional<StepModel> learned = learner_.steps();
    const StepModel& rival = better ? *better : *state_.model;
    if (learned && ErrorOf(*learned) < ErrorOf(rival)) better = std::move(learned);
  }
  if (better) Adopt(*std::move(better), state_.source);
}

// The model scaled to the latest steps of this kind; nothing when it is right about them.
std::optional<StepModel> StepCosts::Rescaled(Kind kind) {
  Window& window = windows_[kind];
  const std::optional<double> jump = JumpOf(window);
  const std::optional<double> change = jump ? jump : ChangeOf(window);
  if (!change) return std::nullopt;
  Window& other = windows_[1 - kind];
  // Before any step of the other kind, the steps of this kind are all that is known of the machine.
  const bool alike = (jump || other.steps.empty()) && HasNotRunLately(other);
  const bool both = alike || (kind == kPrefill && !IsOfPrefills(window));
  absl::StatusOr<StepModel> scaled = StepModel::Create(
      Scaled(state_.model->coefficients(), kind == kPrefill || both ? *change : 1.0,
             kind == kDecode || both ? *change : 1.0));
  if (!scaled.ok()) return std::nullopt;  // factors so extreme that a coefficient overflowed
  if (jump) {
    window.ForgetPace();
    if (decode_shape_ && (kind == kDecode || both)) decode_shape_->Slow(*change);
    // The decodes in steps with prefills have changed, too. For the prefills themselves that is
    // only an assumption.
    if (alike || kind == kDecode) other.Follow(*state_.model, *scaled);
    if (alike) other.KeepLatest(kAssumed);
  }
  return *std::move(scaled);
}

std::optional<StepModel> StepCosts::Reshaped(const StepModel& model) {
  const std::optional<DecodeCost> better = decode_shape_->Better(model);
  if (!better) return std::nullopt;
  StepCoefficients coefficients = model.coefficients();
  coefficients.beta = *better;
  absl::StatusOr<StepModel> reshaped = StepModel::Create(std::move(coefficients));
  if (!reshaped.ok()) return std::nullopt;
  return *std::move(reshaped);
}

// The factor by which the steps of a window take longer than the model predicts, on average;
// nothing when chance explains it.
std::optional<double> StepCosts::ChangeOf(const Window& window) {
  if (window.pace.steps() < kLeastSteps) return std::nullopt;
  const double change = std::log(window.pace.factor());
  const double least = std::log1p(kLeastChange);
  if (!(std::abs(change) > std::max(least, kStandardErrors * window.pace.error()))) {
    return std::nullopt;
  }
  return std::exp(change);
}

// The factor by which steps suddenly take longer than the model predicts, from the median of a
// window, which shows a jump earlier than the mean; nothing without a jump.
std::optional<double> StepCosts::JumpOf(const Window& window) {
  if (window.steps.size() < kLeastSteps) return std::nullopt;
  const auto changed = std::ranges::count_if(window.steps, [](const Seen& seen) {
    return std::max(seen.ratio, 1 / seen.ratio) > 1 + kLeastJump;
  });
  // This returns nearly always: while most steps have not changed, the median cannot have changed.
  if (2 * static_cast<size_t>(changed) < window.steps.size()) return std::nullopt;
  std::vector<double> logs;
  for (const Seen& seen : window.steps) logs.push_back(std::log(seen.ratio));
  const double change = Median(logs);
  for (double& one : logs) one = std::abs(one - change);
  // The standard error of the median for a normal distribution: its standard deviation is 1.48
  // median absolute deviations, and the standard error of its median is 1.25 standard deviations
  // over the root of the count.
  const double error = 1.48 * 1.25 * Median(logs) / std::sqrt(static_cast<double>(logs.size()));
  const double least = std::log1p(kLeastJump);
  if (std::abs(change) <= std::max(least, kJumpErrors * error)) return std::nullopt;
  // A window of many fast steps and a few slow ones has a mean far from its median, although
  // nothing has changed.
  const double mean = std::log(window.MeanRatio(kMostRatio * std::exp(change)));
  if (std::copysign(1.0, change) * mean <= std::log1p(kLeastMeanJump)) return std::nullopt;
  return std::exp(change);
}

void StepCosts::Window::ForgetPace() {
  pace = {};
  for (size_t i = steps.size() / 2; i < steps.size(); ++i) {
    pace.Add(steps[i].step.ms, steps[i].predicted_ms());
  }
}

void StepCosts::Window::KeepLatest(size_t most) {
  while (steps.size() > most) steps.pop_front();
  ForgetPace();
}

void StepCosts::Window::Follow(const StepModel& before, const StepModel& after) {
  double before_ms = 0;
  double after_ms = 0;
  for (Seen& seen : steps) {
    const double was_ms = PredictedMs(before, seen.step.features);
    const double is_ms = PredictedMs(after, seen.step.features);
    seen.step.ms *= is_ms / was_ms;
    seen.ratio *= is_ms / was_ms;
    before_ms += was_ms;
    after_ms += is_ms;
  }
  if (before_ms > 0) pace.Slow(after_ms / before_ms);
}

double StepCosts::Window::MeanRatio(double most) const {
  double sum = 0;
  for (const Seen& seen : steps) sum += std::min(seen.ratio, most);
  return sum / static_cast<double>(steps.size());
}

// Whether prefills took more than half of the time in most steps of the window, so that these show
// the cost of prefills.
bool StepCosts::IsOfPrefills(const Window& window) const {
  size_t of_prefills = 0;
  for (const Seen& seen : window.steps) {
    const StepFeatures& features = seen.step.features;
    const StepFeatures decodes = {.decode_sequences = features.decode_sequences,
                                  .decode_context = features.decode_context};
    const ModelTime whole = state_.model->Step(features);
    if (state_.model->Step(decodes) < whole / 2) ++of_prefills;
  }
  return 2 * of_prefills > window.steps.size();
}

double StepCosts::ErrorOf(const StepModel& model) const {
  double sum = 0;
  size_t steps = 0;
  for (const Window& window : windows_) {
    for (const Seen& seen : window.steps) sum += RelativeError(RatioOf(model, seen.step));
    steps += window.steps.size();
  }
  return steps > 0 ? sum / static_cast<double>(steps) : 0.0;
}

// Replaces the model. Error and drift start from what the new model predicts for the steps in the
// windows.
void StepCosts::Adopt(StepModel model, CostSource source) {
  state_.model = std::make_shared<const StepModel>(std::move(model));
  state_.source = source;
  ++state_.revision;
  state_.error = ErrorOf(*state_.model);
  std::vector<double> ratios;
  for (Window& window : windows_) {
    double before_ms = 0;
    double after_ms = 0;
    for (Seen& seen : window.steps) {
      before_ms += seen.predicted_ms();
      seen.ratio = RatioOf(*state_.model, seen.step);
      after_ms += seen.predicted_ms();
      ratios.push_back(seen.ratio);
    }
    // The predictions of the former model for older steps are not kept, so they are rescaled
    // together.
    if (before_ms > 0) window.pace.Rescale(after_ms / before_ms);
  }
  state_.drift = ratios.empty() ? 0 : Median(ratios);
  since_revision_ = {};
}

}  // namespace tandem
