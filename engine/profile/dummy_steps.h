#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/profile/step_shape.h"
#include "engine/sequence.h"
#include "engine/step_computation.h"
#include "kernels/device.h"
#include "kvstore/kv_store.h"

namespace tandem {

// Steps that serve no request, whose times are measured. Every sequence has a block table of its
// own, and all of its blocks have been written, so that a step of any shape reads the memory that
// it would read when it serves. The blocks are free again when this is destroyed.
// Thread: that of the store and the computation. All parts must outlive this.
class DummySteps {
 public:
  // The number of blocks of `block_tokens` tokens each that Create takes.
  static int64_t Blocks(const StepLimits& limits, int32_t block_tokens);

  struct Parts {
    KvStore& store;
    Stream& stream;  // the one that the store computes on
    StepComputation& computation;
    int32_t vocab_size = 0;
  };
  // Allocates and fills the sequences' blocks. RESOURCE_EXHAUSTED when the store has fewer than
  // Blocks().
  static absl::StatusOr<std::unique_ptr<DummySteps>> Create(const StepLimits& limits,
                                                            const Parts& parts);

  // Runs one step, its sampling included, and returns its time. The shape must be within the
  // limits.
  absl::StatusOr<Duration> Run(const StepShape& shape);

 private:
  explicit DummySteps(StepComputation& computation) : computation_(computation) {}
  absl::Status AddSequence(int32_t tokens, const Parts& parts);

  StepComputation& computation_;
  const LayerStored not_told_;  // empty; the computation keeps a reference to it
  std::unique_ptr<RequestState> request_;
  // The first sequence has the prompt that is prefilled, the others decode.
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::vector<Chunk> chunks_;
};

}  // namespace tandem
