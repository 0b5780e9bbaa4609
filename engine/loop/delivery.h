#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/handoff/outgoing_handoffs.h"
#include "engine/loop/core.h"
#include "engine/sequence.h"
#include "kernels/op_args.h"

namespace tandem {

// What follows from the tokens of a computed step: they are emitted, full blocks enter the prefix
// cache, and requests fork, continue, are handed off or end.
// Thread: engine. Everything that the constructor takes must outlive it.
class Delivery {
 public:
  // `failed` is called when a token could not be sampled.
  Delivery(EngineCore& core, OutgoingHandoffs& handoffs,
           const std::function<void(const absl::Status&)>& failed)
      : core_(core), handoffs_(handoffs), failed_(failed) {}

  // `tokens` are the samples of all chunks in order; the KV was complete at `computed`.
  void Deliver(std::span<const Chunk> chunks, std::span<absl::StatusOr<SampledToken>> tokens,
               TimePoint computed);

  uint64_t output_tokens() const { return output_tokens_; }

 private:
  void DeliverTo(Sequence& sequence, int32_t computed_tokens,
                 std::span<absl::StatusOr<SampledToken>> tokens, TimePoint computed);
  void DeliverFirst(Sequence& root, std::span<const SampledToken> first);
  void DeliverBeams(Sequence& sequence, std::span<const SampledToken> tokens);
  void EndPrefill(RequestState& request, TimePoint computed);

  EngineCore& core_;
  OutgoingHandoffs& handoffs_;
  const std::function<void(const absl::Status&)>& failed_;
  uint64_t output_tokens_ = 0;
};

}  // namespace tandem
