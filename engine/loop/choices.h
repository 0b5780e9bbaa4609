#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/finish_reason.h"
#include "engine/loop/request_table.h"
#include "engine/sequence.h"
#include "kernels/op_args.h"
#include "scheduler/scheduler.h"

namespace tandem {

// The choices of a request once its prompt is computed: one sequence per sampled choice, or the
// beams of one sequence. Also the choices of a request that resumes behind tokens which another
// worker emitted.
// Thread: engine. Everything that the constructor takes must outlive it.
class Choices {
 public:
  struct Parts {
    RequestTable& requests;
    Scheduler& scheduler;
    const Clock& clock;
    int32_t block_tokens = 0;
  };
  explicit Choices(const Parts& parts) : parts_(parts) {}

  // The prompt is computed and `first` is sampled, one token per choice: continues with one
  // sequence per choice that has not ended with its first token.
  void Fork(Sequence& root, std::span<const SampledToken> first);
  // Appends the next token of a sampled choice; ends the choice when it is the last one.
  void Append(Sequence& sequence, const SampledToken& token);
  // Makes the next step of a beam search, from the most probable tokens of each row. Ends the
  // request when the search is done.
  void AdvanceBeams(Sequence& sequence, std::span<const SampledToken> tops);

  // Adds a request that resumes output of another worker: one sequence per choice that has not
  // ended. Each is computed from the prompt on, as after a preemption.
  void Resume(std::unique_ptr<RequestState> request);
  // Continues a request that resumes output of another worker when the KV of its prompt is in
  // `root`: one sequence per choice that has not ended.
  void ResumeFrom(Sequence& root);

  // The client needs no more tokens of choice `index`. Ignored for a choice that is unknown or has
  // ended.
  void EndEarly(RequestState& request, int32_t index);

 private:
  void End(Sequence& sequence, FinishReason reason);
  void EmitHypotheses(RequestState& request);

  const Parts parts_;
};

}  // namespace tandem
