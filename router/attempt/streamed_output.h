#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// The tokens of a request that its client has been sent, over all attempts: each position of each
// choice once, whichever worker sends it. It says where a new attempt continues, and checks what
// that attempt has to send again.
// Thread: the router's loop.
class StreamedOutput {
 public:
  // `sequence` outlives it.
  explicit StreamedOutput(const v1::SequenceRequest& sequence);

  // What the next worker sends of each choice: all from its first token on (ExpectFromStart), or
  // only what follows the emitted tokens (ExpectAfterEmitted).
  void ExpectFromStart();
  void ExpectAfterEmitted();

  // A worker sends these tokens of a choice that exists. Returns those that are new, maybe none,
  // and counts them as emitted. INTERNAL when a token is not the one emitted at its position:
  // routing must never change the answer.
  absl::StatusOr<v1::WorkerTokens> Add(const v1::WorkerTokens& tokens);
  // The choice needs no more tokens: its worker said so, or a stop string came.
  void End(int32_t index) { choices_[index].emitted.set_ended(true); }

  // Whether any token has been emitted.
  bool any() const { return any_; }
  // The number of tokens of the shortest choice that goes on; 0 when none goes on.
  int32_t LeastEmitted() const;
  bool ended(int32_t index) const { return choices_[index].emitted.ended(); }
  // Why the emitted tokens end the choice, also when no worker has said that it ended; unspecified
  // while more tokens may follow.
  v1::WorkerFinish::Reason ReasonOf(int32_t index) const;
  // The emitted tokens of a choice, as a worker needs them that continues after them.
  v1::OutputSoFar Emitted(int32_t index) const;

 private:
  struct Choice {
    v1::OutputSoFar emitted;
    // The number of tokens that the present attempt has sent, with those that it need not send
    // again.
    int received = 0;
  };

  const v1::SequenceRequest& sequence_;
  std::vector<Choice> choices_;
  bool any_ = false;
};

}  // namespace tandem
