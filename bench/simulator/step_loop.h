#pragma once

#include <functional>
#include <vector>

#include "bench/simulator/worker_core.h"

namespace tandem::simulator {

// Plans the steps of one worker with its scheduler, lets each of them take the time that the cost
// model predicts, and delivers what they sampled.
// Thread: one at a time.
class StepLoop {
 public:
  struct Parts {
    WorkerCore& core;
    // The prompt of the sequence is computed and its first token is emitted: its KV is to be sent.
    std::function<void(SimulatedSequence&)> hand_off;
    std::function<void()> step_ended;
  };
  explicit StepLoop(Parts parts) : parts_(std::move(parts)) {}

  bool running() const { return running_; }
  // Plans and begins the next step. Call when none runs. When nothing can be computed, returns
  // whether another plan right away may find something.
  bool Begin();

 private:
  void Apply(const StepPlan& plan);
  void Admit(const Admission& admission);
  void Preempt(SequenceId id);
  StepFeatures TakeBlocks(const StepPlan& plan);
  void OnComputed();
  void Sampled(SimulatedSequence& sequence);

  const Parts parts_;
  StepPlan plan_;
  std::vector<SimulatedSequence*> decoding_;  // of plan_; none ends while the step runs
  StepFeatures features_;
  Duration took_{};
  bool running_ = false;
};

}  // namespace tandem::simulator
