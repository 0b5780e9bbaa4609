#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/loop/core.h"
#include "engine/sequence.h"
#include "engine/stats.h"
#include "engine/step_computation.h"

namespace tandem {

// Evicts KV of requests that ask for it (docs/token_eviction.md). At the end of a prompt, the
// tokens that stay are copied into blocks of the sequence's own, and its other blocks are released;
// what the prefix cache has of the prompt stays whole. During decoding, a block is evicted whenever
// the sequence needs a new one and holds more than its share.
// Thread: engine. Everything that the constructor takes must outlive it.
class TokenEvictor {
 public:
  TokenEvictor(EngineCore& core, StepComputation& computation)
      : core_(core), computation_(computation) {}

  // Allocates the blocks for the tokens that will be kept. Call when the sequence is admitted.
  static void Prepare(EngineCore& core, Sequence& sequence);

  // Evicts what the sequence's request asks for, and posts the KV that is kept when it is handed
  // off. All known tokens of the sequence must be computed and in the prefix cache. An error ends
  // the request.
  absl::Status Evict(Sequence& sequence);

  // Sets the fields of `stats` about evicted tokens.
  void AddTo(EngineStats& stats) const;

 private:
  absl::Status EvictPrompt(Sequence& sequence);
  void EvictWhileDecoding(Sequence& sequence);
  void Count(Sequence& sequence, int32_t tokens);

  EngineCore& core_;
  StepComputation& computation_;
  uint64_t evictions_ = 0;
  uint64_t evicted_tokens_ = 0;
};

}  // namespace tandem
