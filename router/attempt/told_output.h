#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// What a request's observer has been told of each choice, over all attempts: each position once,
// whichever worker speaks. Where a new attempt goes on, and what it must repeat.
// Thread: the router's loop.
class ToldOutput {
 public:
  // `sequence` outlives it.
  explicit ToldOutput(const v1::SequenceRequest& sequence);

  // Whoever speaks next begins with the first token, or behind all that was told.
  void ListenFromStart();
  void ListenBehind();

  // A worker says these of a choice that exists. Returns those that are new, maybe none. INTERNAL
  // when it says something else than was told (P2).
  absl::StatusOr<v1::WorkerTokens> Take(const v1::WorkerTokens& tokens);
  // The choice needs no more: its worker said so, or a stop string came.
  void End(int32_t index) { choices_[index].set_ended(true); }

  bool any() const { return any_; }
  bool ended(int32_t index) const { return choices_[index].ended(); }
  // How the tokens told end the choice, whether its end was told or not; unspecified: it goes on.
  v1::WorkerFinish::Reason ReasonOf(int32_t index) const;
  // For a worker that goes on behind it.
  v1::OutputSoFar SoFar(int32_t index) const;

 private:
  const v1::SequenceRequest& sequence_;
  std::vector<v1::OutputSoFar> choices_;
  std::vector<int> heard_;  // tokens of each that the present attempt has said, or need not say
  bool any_ = false;
};

}  // namespace tandem
