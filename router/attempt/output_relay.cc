#include "router/attempt/output_relay.h"

#include "base/status.h"

namespace tandem {

OutputRelay::OutputRelay(const RequestSpec& spec, DispatchObserver& observer, const Clock& clock,
                         ResumeStats& resumes, RouteProofs* proofs)
    : spec_(spec),
      observer_(observer),
      clock_(clock),
      resumes_(resumes),
      proofs_(proofs),
      output_(spec.sequence),
      latest_(spec.received) {}

absl::Status OutputRelay::CheckIndex(const WorkerRef& sender, int32_t index) const {
  if (index >= 0 && index < spec_.sequence.n()) return absl::OkStatus();
  return Internal("{} spoke of choice {}; the request has {}", RoleAndName(sender), index,
                  spec_.sequence.n());
}

absl::Status OutputRelay::OnTokens(const AttemptWorkers& workers, const WorkerRef& sender,
                                   const v1::WorkerTokens& tokens, const v1::StageTimes& stages) {
  if (closed_ || tokens.token_ids().empty()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckIndex(sender, tokens.index()));
  const absl::StatusOr<v1::WorkerTokens> fresh = output_.Add(tokens);
  if (!fresh.ok()) return Annotate(fresh.status(), RoleAndName(sender));
  if (fresh->token_ids().empty()) return absl::OkStatus();
  if (!begun_) {
    begun_ = Begun{.prompt = NumericsOf(workers.prefill), .output = NumericsOf(workers.output())};
  }
  const TimePoint now = clock_.Now();
  if (proofs_ != nullptr && &sender == &workers.output()) proofs_->Passed(workers.route(), now);
  if (interruption_) {
    resumes_.AddPause(interruption_->cause, now - interruption_->since, now - latest_);
  }
  interruption_.reset();
  latest_ = now;
  observer_.OnTokens(*fresh, stages);
  return absl::OkStatus();
}

absl::Status OutputRelay::OnChoiceEnded(const WorkerRef& sender,
                                        const v1::WorkerChoiceFinish& finish) {
  if (closed_) return absl::OkStatus();
  RETURN_IF_ERROR(CheckIndex(sender, finish.index()));
  output_.End(finish.index());
  observer_.OnChoiceEnded(finish);
  return absl::OkStatus();
}

absl::Status OutputRelay::OnPromptLogprobs(const WorkerRef& sender,
                                           const v1::PromptLogprobs& logprobs) {
  if (closed_) return absl::OkStatus();
  const int64_t end = int64_t{logprobs.first()} + logprobs.tokens_size();
  if (logprobs.first() < 1 || logprobs.first() > scored_tokens_ ||
      end > spec_.sequence.prompt_size()) {
    return Internal("{} scored tokens [{}, {}) of a prompt of {}, of which {} were scored before",
                    RoleAndName(sender), logprobs.first(), end, spec_.sequence.prompt_size(),
                    scored_tokens_);
  }
  if (end <= scored_tokens_) return absl::OkStatus();
  v1::PromptLogprobs fresh = logprobs;
  fresh.mutable_tokens()->DeleteSubrange(0, scored_tokens_ - logprobs.first());
  fresh.set_first(scored_tokens_);
  scored_tokens_ = static_cast<int32_t>(end);
  observer_.OnPromptLogprobs(fresh);
  return absl::OkStatus();
}

void OutputRelay::EndCompleteChoices() {
  for (int32_t i = 0; !spec_.has_beams() && !closed_ && i < spec_.sequence.n(); ++i) {
    const v1::WorkerFinish::Reason reason = output_.ReasonOf(i);
    if (output_.ended(i) || reason == v1::WorkerFinish::REASON_UNSPECIFIED) continue;
    output_.End(i);
    v1::WorkerChoiceFinish finish;
    finish.set_index(i);
    finish.set_reason(reason);
    observer_.OnChoiceEnded(finish);
  }
}

// Where several workers are lost before the next token, the first loss counts.
void OutputRelay::Interrupt(ResumeCause cause) {
  if (!interruption_) interruption_ = Interruption{.since = clock_.Now(), .cause = cause};
}

}  // namespace tandem
