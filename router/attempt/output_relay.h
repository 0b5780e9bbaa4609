#pragma once

#include <optional>

#include "absl/status/status.h"
#include "base/clock.h"
#include "router/attempt/attempt_workers.h"
#include "router/attempt/resume_stats.h"
#include "router/attempt/route_proofs.h"
#include "router/attempt/streamed_output.h"
#include "router/cluster/numerics.h"
#include "router/request/request_spec.h"

namespace tandem {

// Receives a request's output and how it ends. It may destroy the dispatch only later, from another
// task. Thread: the router's loop.
class DispatchObserver {
 public:
  virtual ~DispatchObserver() = default;
  // New tokens of one choice; `stages` are those of its first token. Indices are in range.
  virtual void OnTokens(const v1::WorkerTokens& tokens, const v1::StageTimes& stages) = 0;
  virtual void OnChoiceEnded(const v1::WorkerChoiceFinish& finish) = 0;
  // The next log-probabilities of the prompt, each position once, in order.
  virtual void OnPromptLogprobs(const v1::PromptLogprobs& logprobs) = 0;
  // Whether any choice continues after its first token. Asked once all choices have theirs.
  virtual bool NeedsDecode() const = 0;
  // The prefill worker's report on its transfer has come, or never will
  // (AttemptReports::accounted).
  virtual void OnAccounted() = 0;
  // The request waits for news of the workers from now on: it is to learn of every change of the
  // cluster until it no longer waits.
  virtual void OnWaits() = 0;
  // Exactly one of OnFinished and OnFailed is called, once, last. The workers may not have ended
  // every choice.
  virtual void OnFinished() = 0;
  virtual void OnFailed(const absl::Status& status) = 0;
};

// Passes what the workers of all attempts send to the request's observer: each token once, and
// nothing after Close. It measures how long the client waits when an attempt is replaced.
// Thread: the router's loop.
class OutputRelay {
 public:
  // All arguments outlive the relay. proofs: null where it is not recorded which routes work.
  OutputRelay(const RequestSpec& spec, DispatchObserver& observer, const Clock& clock,
              ResumeStats& resumes, RouteProofs* proofs);

  // Passes on tokens from `sender`, one of `workers`. INTERNAL when the choice does not exist or a
  // token differs from the one that the client has.
  absl::Status OnTokens(const AttemptWorkers& workers, const WorkerRef& sender,
                        const v1::WorkerTokens& tokens, const v1::StageTimes& stages);
  // Passes on how a choice ended, as `sender` says. INTERNAL when the choice does not exist.
  absl::Status OnChoiceEnded(const WorkerRef& sender, const v1::WorkerChoiceFinish& finish);
  // Passes on log-probabilities of the prompt from `sender`; a worker that was lost may have sent
  // some of them before. INTERNAL when positions are missing or do not exist.
  absl::Status OnPromptLogprobs(const WorkerRef& sender, const v1::PromptLogprobs& logprobs);
  bool NeedsDecode() const { return observer_.NeedsDecode(); }
  void OnAccounted() { observer_.OnAccounted(); }

  // Ends the choices whose last token was emitted, though no worker said that they ended. A beam
  // search has no such choices: its hypotheses come whole.
  void EndCompleteChoices();
  // The client waits for another worker from now on, until its next token: measures that pause.
  void Interrupt(ResumeCause cause);
  void Close() { closed_ = true; }

  StreamedOutput& output() { return output_; }
  const StreamedOutput& output() const { return output_; }
  // The numerics of the workers that computed the first token; nothing before it.
  const std::optional<Begun>& begun() const { return begun_; }

 private:
  struct Interruption {
    TimePoint since;
    ResumeCause cause = ResumeCause::kConnection;
  };

  absl::Status CheckIndex(const WorkerRef& sender, int32_t index) const;

  const RequestSpec& spec_;
  DispatchObserver& observer_;
  const Clock& clock_;
  ResumeStats& resumes_;
  RouteProofs* const proofs_;
  StreamedOutput output_;
  int32_t scored_tokens_ = 1;  // tokens of the prompt; the first one has no log-probability
  TimePoint latest_;           // when the client was sent its latest tokens; at first the arrival
  std::optional<Begun> begun_;
  std::optional<Interruption> interruption_;
  bool closed_ = false;
};

}  // namespace tandem
