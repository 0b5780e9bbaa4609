#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "scheduler/latency_model/decode_roll.h"
#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// Simulates the queues of one worker with the step model, as its scheduler would run them: every
// decoding sequence in every step, the rest of the token budget to prefill chunks, first come,
// first served; a sequence is admitted when a place is free and the KV of all admitted sequences
// fits at the worst moment to come. One request, the subject, is followed; it stands behind all
// others. Consecutive steps that are alike are simulated as one segment. After kExactSegments the
// segments grow, and after kMostSegments the rest of the queue is taken as full steps, so that the
// cost of a simulation is bounded. Requests that arrive later stand behind the subject, so that
// they count only while it decodes (decode_roll.h).
class QueueRoll {
 public:
  // `worker` must outlive this. Time 0 is now; where the worker's state does not say when its step
  // began, now is taken to be the middle of a step.
  explicit QueueRoll(const WorkerState& worker);

  // Simulates until the subject's last new token is computed, or, when it has none, until it is
  // admitted. False when it does not fit into the worker even alone. Called at most once.
  bool Serve(const WaitingGroup& subject);
  // Simulates the worker until `moment_ms`; a step that has begun by then is completed.
  void RunUntil(double moment_ms);
  // The time that the subject takes to decode. Called last.
  DecodeTime Decode(const DecodingRequest& subject);

  double now_ms() const { return now_ms_; }
  // The time when the first step with tokens of the subject began.
  double began_ms() const { return began_ms_; }
  // The number of steps that computed tokens of the subject.
  double chunks() const { return chunks_; }
  // The time that the prompt of the subject added to the steps that computed it.
  double added_prefill_ms() const { return added_.prefill_ms; }
  // The time that the subject added to the decodes of other sequences, summed over those sequences.
  double externality_ms() const { return added_.externality_ms; }

 private:
  static constexpr int kExactSegments = 96;
  static constexpr int kMostSegments = 160;

  // A group of admitted prompts of the same shape; their tokens are computed one prompt after the
  // other.
  struct Prompts {
    WaitingGroup group;
    double tokens_left = 0;  // tokens of the whole group that are not computed yet
    double token_pairs = 0;  // causal (query, key) pairs of one token, on average
    bool subject = false;
  };
  // The time that the subject adds to other work on the worker.
  struct Added {
    double prefill_ms = 0;      // by its prompt, to the steps that compute it
    double externality_ms = 0;  // to the decodes of other sequences, summed over them
  };
  // The number of tokens and pairs in the prefill chunks of one step.
  struct Chunks {
    double tokens = 0;
    double pairs = 0;
    double subject_tokens = 0;
    double subject_pairs = 0;
  };

  bool IsSubject(size_t waiting) const { return has_subject_ && waiting + 1 == waiting_.size(); }
  void CatchUp(double elapsed_ms);
  double StepsWithoutNews(double budget) const;
  void SkipQueue();
  void Admit();
  int32_t CountThatFits(const WaitingGroup& group);
  std::vector<DecodeGroup> Admitted() const;

  Chunks NextChunks() const;
  double SegmentSteps(double wanted, double most);
  double PromptSteps(double budget) const;
  double StepsUntilAnEnd() const;
  double StepMs(double tokens, double pairs, double steps) const;
  double Budget() const;
  double NumDecoding() const;

  // Runs steps that are alike, at most `most` of them.
  void RunSegment(double most);
  void AdvanceDecodes(double steps);
  void ConsumePrompts(double tokens);

  const WorkerState& worker_;
  std::vector<DecodeGroup> decoding_;
  std::vector<Prompts> prompts_;       // the first next_prompt_ entries are computed
  std::vector<WaitingGroup> waiting_;  // the first next_waiting_ entries are admitted
  size_t next_prompt_ = 0;
  size_t next_waiting_ = 0;
  double capacity_tokens_ = 0;  // tokens of KV that all admitted sequences share
  // The tokens by which the next waiting group exceeds capacity_tokens_; 0 when it fits.
  double excess_tokens_ = 0;
  bool has_subject_ = false;  // whether Serve was called: the subject is the last entry of waiting_
  bool served_ = false;
  double now_ms_ = 0;
  double began_ms_ = 0;
  double chunks_ = 0;
  Added added_;
  int segments_ = 0;
};

}  // namespace tandem
