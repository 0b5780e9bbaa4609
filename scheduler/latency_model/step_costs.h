#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "base/clock.h"
#include "scheduler/latency_model/component_fit.h"
#include "scheduler/latency_model/cost_state.h"
#include "scheduler/latency_model/decode_shape.h"
#include "scheduler/latency_model/pace_mean.h"
#include "scheduler/latency_model/step_learner.h"
#include "scheduler/latency_model/step_model.h"

namespace tandem {

// The step model of a worker, kept true to the steps that it runs. A model that was given is scaled
// when the machine gets slower or faster: prefills and decodes by a factor each. What decodes of
// different batches take compared with each other is fitted to the steps that ran. Without one, a
// model is learned from the steps. The mean time of the latest steps decides, because an output
// takes the sum of many of them: steps that are held up by other work of the machine count, each as
// at most a few times what is usual, so that a single stall changes little. A large change is found
// by the median of fewer steps, and the mean starts anew there. The kind that has not run for a
// while is then taken to have changed alike, until it runs again and shows what it takes.
// Pure: time comes in as durations. Thread: one at a time.
class StepCosts {
 public:
  // The kinds of steps that the worker runs: a model that it learns must know these.
  struct Kinds {
    bool prefills = true;
    bool decodes = true;
  };

  explicit StepCosts(Kinds kinds) : kinds_(kinds) {}

  // Predictions come from these coefficients from now on; `error` is their mean relative error as
  // far as it is known. INVALID_ARGUMENT as StepModel::Create; then nothing changes.
  absl::Status SetModel(StepCoefficients coefficients, CostSource source, double error);

  // A step that served requests took so long. The first ones, which pay for what later ones find
  // prepared, do not count.
  void Observe(const StepFeatures& features, Duration took);

  const CostState& state() const { return state_; }

 private:
  enum Kind : uint8_t { kPrefill, kDecode };
  struct Seen {
    TimedStep step;
    double ratio = 1;  // of its time to what the model says; without a model it means nothing

    double predicted_ms() const { return step.ms / ratio; }
  };
  // The latest steps of one kind, in order.
  struct Window {
    std::deque<Seen> steps;
    int32_t since_check = 0;  // steps
    PaceMean pace;            // of more steps than those
    Duration latest{};        // the time of all steps when the latest of these ended

    // These steps are taken to need as much longer than they did as `after` says of them, compared
    // with `before`. So they differ from `after` as they did from `before`.
    void Follow(const StepModel& before, const StepModel& after);
    // At most so many steps; the mean is that of their later half.
    void KeepLatest(size_t most);
    // The mean is that of the later half of the steps from now on.
    void ForgetPace();
    // The mean ratio of the steps, each of which counts as at most `most`.
    double MeanRatio(double most) const;
  };

  void Count(double ratio);
  void Remember(const TimedStep& step, double ratio);
  bool HasNotRunLately(const Window& window) const;
  bool LearnerKnowsEnough() const;
  void Learn();
  void Refine(Kind kind);
  std::optional<StepModel> Rescaled(Kind kind);
  std::optional<StepModel> Reshaped(const StepModel& model);
  static std::optional<double> ChangeOf(const Window& window);
  static std::optional<double> JumpOf(const Window& window);
  bool IsOfPrefills(const Window& window) const;
  double ErrorOf(const StepModel& model) const;
  void Adopt(StepModel model, CostSource source);

  const Kinds kinds_;
  StepLearner learner_;  // observes every step as long as no model was given
  CostState state_;
  std::array<Window, 2> windows_;  // [Kind]
  // The shape of a model that was given; the learner finds that of its own.
  std::optional<DecodeShape> decode_shape_;
  uint64_t seen_ = 0;
  std::array<uint64_t, 2> seen_of_{};  // [Kind]
  uint64_t learned_at_ = 0;            // value of seen_ when the learner was last asked
  Duration ran_{};                     // the time of all steps
  Duration since_revision_{};          // of those since the model was changed
};

}  // namespace tandem
