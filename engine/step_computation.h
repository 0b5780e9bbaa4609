#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/sequence.h"
#include "kernels/op_args.h"
#include "model/transformer/forward.h"

namespace tandem {

// Whether steps that consist of decodes alone run as recorded graphs. They cannot when a callback
// is called for each layer.
enum class DecodeSteps : uint8_t { kRecorded, kPlain };

// What computes the steps of an engine: a model on a device, or a simulation that only takes the
// time. The engine makes room in the KV store, schedules, samples and delivers in the same way for
// both. Thread: engine.
class StepComputation {
 public:
  virtual ~StepComputation() = default;

  // Whether WarmUp has anything to do.
  virtual bool can_warm_up() const = 0;
  // Whether WarmUp can run without waiting for weights; an error when they could not be loaded.
  virtual absl::StatusOr<bool> weights_loaded() const = 0;
  // Does a part of the warm-up, which is work that the first steps would otherwise do, and returns
  // whether it was the last part. After an error, steps do the rest when they need it.
  virtual absl::StatusOr<bool> WarmUp(DecodeSteps decodes) = 0;

  // Queues the computation of `chunks`, prefills first, then `num_decodes` of one token each.
  // Reserves blocks for them in their tables; the scheduler has made sure that there is room.
  // `layer_stored`, if there is one, is called for each layer once the layer's KV of these chunks
  // is in the pool: within this call where the device is the host, within Await elsewhere; it must
  // live until then. An error concerns the whole step, of which nothing remains queued.
  virtual absl::Status Forward(std::span<const Chunk> chunks, int32_t num_decodes,
                               const LayerStored& layer_stored) = 0;
  // Waits until the computation is done. An error concerns the whole step.
  virtual absl::Status Await() = 0;

  // Samples the tokens after each chunk that wants some, in the order of the chunks. Call once,
  // after a Forward of the same chunks, which it awaits. An error concerns one token alone.
  virtual std::span<absl::StatusOr<SampledToken>> Sample(std::span<const Chunk> chunks) = 0;

  // The log-probabilities of the prompt that the latest Sample computed: one entry per chunk that
  // wants some (num_scored), in the order of the chunks. An error concerns one chunk alone.
  virtual std::span<absl::StatusOr<std::vector<SampledToken>>> prompt_logprobs() = 0;

  // Copies the KV of those tokens of `sequence` that are kept into the blocks of its pending
  // eviction. All of its known tokens were computed. On return others may read the copies.
  virtual absl::Status Evict(const Sequence& sequence) = 0;

  // Tells that there is nothing to compute now: the next step will not follow the latest one at
  // once.
  virtual void OnPause() = 0;
};

}  // namespace tandem
