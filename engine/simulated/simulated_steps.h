#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/options.h"
#include "engine/sequence.h"
#include "engine/simulated/output_lengths.h"
#include "engine/step_computation.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model/step_model.h"

namespace tandem {

// The speed and the outputs of a simulated model.
struct SimulatedStepsOptions {
  StepModel steps;
  double slowdown = 1;  // every step takes this multiple of what `steps` says
  OutputLengths lengths;
  std::vector<int32_t> eos_token_ids;  // one of them ends an output that has reached its length
  // Waits until that time of the engine's clock; it may return a little later. Null: sleeps. Tests
  // pass a function that moves a clock of their own.
  std::function<void(TimePoint)> wait_until;
};

// Checks the options. INVALID_ARGUMENT when the slowdown is no positive number, or when the largest
// step of an engine with these options would take more than a minute, because nothing ends a step
// that has begun.
absl::Status CheckSimulatedSteps(const EngineOptions& options,
                                 const SimulatedStepsOptions& simulated);

// Takes the time of a step without computing it, and makes up its tokens: the token at a position
// follows from the seed and the position alone, so that every worker, batch and route gives the same
// (P2). Blocks are reserved and copied as for a real step, but nothing is written to them.
//
// A step that contains prompts reports its layers at even parts of its time. A step that follows
// another one begins when that one ended by the model: planning, delivering tokens and waking up late
// are part of its time, so that many steps together take what the model says, unless the machine needs
// longer than that. Thread: engine. Everything that the constructor takes must outlive it.
class SimulatedSteps final : public StepComputation {
 public:
  struct Parts {
    const SimulatedStepsOptions& options;  // must be valid
    int32_t vocab_size = 0;
    Ops& ops;
    KvStore& store;
    Stream& stream;  // the one that `store` computes on
    const Clock& clock;
  };
  explicit SimulatedSteps(const Parts& parts) : parts_(parts) {}

  bool can_warm_up() const override { return false; }
  absl::StatusOr<bool> weights_loaded() const override { return true; }
  absl::StatusOr<bool> WarmUp(DecodeSteps) override { return true; }

  // Returns when the time of the step has passed.
  absl::Status Forward(std::span<const Chunk> chunks, int32_t num_decodes,
                       const LayerStored& layer_stored) override;
  absl::Status Await() override { return absl::OkStatus(); }
  std::span<absl::StatusOr<SampledToken>> Sample(std::span<const Chunk> chunks) override;
  std::span<absl::StatusOr<std::vector<SampledToken>>> prompt_logprobs() override {
    return scored_;
  }
  // There is no KV to copy: blocks of a simulated worker have no content.
  absl::Status Evict(const Sequence&) override { return absl::OkStatus(); }
  void OnPause() override { follows_ = false; }

 private:
  void WaitUntil(TimePoint when);
  int32_t TokenAt(uint64_t seed, const Chunk& chunk, uint32_t drawn) const;
  SampledToken Draw(const Chunk& chunk, int32_t choice) const;
  std::vector<SampledToken> Score(const Chunk& chunk) const;

  const Parts parts_;
  bool follows_ = false;  // the next step follows the latest one without a pause
  TimePoint ends_{};      // end of the latest step, by the model
  BlockCopies copies_;
  std::vector<absl::StatusOr<SampledToken>> results_;
  std::vector<absl::StatusOr<std::vector<SampledToken>>> scored_;
};

}  // namespace tandem
