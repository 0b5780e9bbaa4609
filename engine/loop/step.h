#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/handoff/outgoing_handoffs.h"
#include "engine/loop/core.h"
#include "engine/loop/delivery.h"
#include "engine/loop/plan_applier.h"
#include "engine/loop/step_timer.h"
#include "engine/loop/token_evictor.h"
#include "engine/progress.h"
#include "engine/sequence.h"
#include "engine/stats.h"
#include "engine/step_computation.h"
#include "model/transformer/forward.h"

namespace tandem {

// The steps of an engine, one after another: plan, apply, compute, deliver.
// Thread: engine. Everything that the constructor takes must outlive it.
class StepRunner {
 public:
  struct Parts {
    EngineCore& core;
    OutgoingHandoffs& handoffs;
    StepComputation& computation;
    Progress& progress;
    const LayerStored& layer_stored;  // called for each layer whose KV is in the pool; may be null
    // Called when a step, or the sampling of a token, failed.
    const std::function<void(const absl::Status&)>& failed;
  };
  explicit StepRunner(const Parts& parts);

  // Runs one step. Returns whether there was anything to do.
  bool Run();

  // The chunks of the step in progress.
  std::span<const Chunk> chunks() const { return chunks_; }

  // Sets the fields of `stats` that count steps and tokens.
  void AddTo(EngineStats& stats) const;

 private:
  void BuildChunks(const StepPlan& plan);
  static void AddScores(const RequestState& request, Chunk& chunk);
  void AddDecodes(Sequence& sequence);
  void Fail(const absl::Status& status);

  const Parts parts_;
  PlanApplier applier_;
  TokenEvictor evictor_;
  Delivery delivery_;
  StepTimer timer_;
  std::vector<Chunk> chunks_;
  uint64_t steps_ = 0;
  uint64_t prompt_tokens_ = 0;
};

}  // namespace tandem
