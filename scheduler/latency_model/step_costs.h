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

// The step model of a worker, adapted to the steps that it runs. A model that was given is scaled
// when the machine gets slower or faster: prefills and decodes by a factor each. The cost of
// decodes of different batches relative to each other is fitted to the steps that ran. Without a
// given model, one is learned from the steps. The mean time of the latest steps decides, because an
// output takes the sum of many steps: steps that are held up by other work of the machine count,
// each as at most a few times the usual time, so that a single stall changes little. A large change
// is detected by the median of fewer steps, and the mean starts anew there. A kind of steps that
// has not run for a while is then taken to have changed alike, until it runs again and shows its
// time.
// Pure: time comes in as durations. Thread: one at a time.
class StepCosts {
 public:
  // The kinds of steps that the worker runs: a learned model needs steps of each of them.
  struct Kinds {
    bool prefills = true;
    bool decodes = true;
  };

  explicit StepCosts(Kinds kinds) : kinds_(kinds) {}

  // Predictions are made with these coefficients from now on; `error` is their mean relative error
  // as far as it is known. Errors as those of StepModel::Create; then nothing changes.
  absl::Status SetModel(StepCoefficients coefficients, CostSource source, double error);

  // Records a step that served requests and its time. The first steps, which fill caches and pages
  // for later ones, do not count.
  void Observe(const StepFeatures& features, Duration took);

  const CostState& state() const { return state_; }

 private:
  enum Kind : uint8_t { kPrefill, kDecode };
  struct Seen {
    TimedStep step;
    double ratio = 1;  // measured / predicted time of the step; meaningless without a model

    double predicted_ms() const { return step.ms / ratio; }
  };
  // The latest steps of one kind, in order.
  struct Window {
    std::deque<Seen> steps;
    int32_t since_check = 0;  // number of steps since the window was last compared with the model
    PaceMean pace;            // mean over more steps than the window holds
    Duration latest{};        // total time of all steps when the latest step of this kind ended

    // Rescales the steps by after / before, the change of what the model predicts for them, so that
    // they deviate from `after` as they did from `before`.
    void Follow(const StepModel& before, const StepModel& after);
    // Keeps at most `most` steps; the mean is then that of their later half.
    void KeepLatest(size_t most);
    // Computes the mean anew, from the later half of the steps in the window.
    void ForgetPace();
    // The mean ratio of measured to predicted time over the steps, each of which counts as at most
    // `most`.
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
  std::array<Window, 2> windows_;  // indexed by Kind
  // Fits the decode costs of a model that was given; a learned model is fitted by learner_ instead.
  std::optional<DecodeShape> decode_shape_;
  uint64_t seen_ = 0;
  std::array<uint64_t, 2> seen_of_{};  // indexed by Kind
  uint64_t learned_at_ = 0;            // value of seen_ when the learner was last asked
  Duration ran_{};                     // total time of all observed steps
  Duration since_revision_{};          // time of the steps since the model was last changed
};

}  // namespace tandem
