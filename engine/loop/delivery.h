#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/handoff/outgoing_handoffs.h"
#include "engine/loop/core.h"
#include "engine/loop/token_evictor.h"
#include "engine/sequence.h"
#include "kernels/op_args.h"

namespace tandem {

// Acts on the results of a computed step: tokens are emitted, full blocks enter the prefix cache,
// KV is evicted at the end of prompts, and requests fork, continue, are handed off or end.
// Thread: engine. Everything that the constructor takes must outlive it.
class Delivery {
 public:
  // `failed` is called when a token could not be sampled.
  Delivery(EngineCore& core, OutgoingHandoffs& handoffs, TokenEvictor& evictor,
           const std::function<void(const absl::Status&)>& failed)
      : core_(core), handoffs_(handoffs), evictor_(evictor), failed_(failed) {}

  using Scores = absl::StatusOr<std::vector<SampledToken>>;  // log-probabilities of a prompt

  // `tokens` are the samples of all chunks in order, `scores` the log-probabilities of the chunks
  // that score their prompt; the KV was complete at `computed`.
  void Deliver(std::span<const Chunk> chunks, std::span<absl::StatusOr<SampledToken>> tokens,
               std::span<Scores> scores, TimePoint computed);

  uint64_t output_tokens() const { return output_tokens_; }

 private:
  // What a step computed for one sequence.
  struct Part {
    SequenceId id;
    int32_t computed_tokens = 0;
    size_t samples = 0;
    const Scores* scores = nullptr;  // null: no log-probabilities of the prompt are wanted
  };

  void DeliverTo(Sequence& sequence, const Part& part,
                 std::span<absl::StatusOr<SampledToken>> tokens, TimePoint computed);
  absl::Status DeliverScores(RequestState& request, const Scores& scores);
  void EndScored(RequestState& request);
  void DeliverFirst(Sequence& root, std::span<const SampledToken> first);
  void DeliverBeams(Sequence& sequence, std::span<const SampledToken> tokens);
  void EndPrefill(RequestState& request, TimePoint computed);

  EngineCore& core_;
  OutgoingHandoffs& handoffs_;
  TokenEvictor& evictor_;
  const std::function<void(const absl::Status&)>& failed_;
  uint64_t output_tokens_ = 0;
};

}  // namespace tandem
