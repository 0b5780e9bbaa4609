#include "engine/loop/plan_applier.h"

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/loop/token_evictor.h"

namespace tandem {

// Each sequence is looked up again before it is used, because a request may end while the plan is
// applied, and its other sequences in the plan end with it. Cached prefixes are attached before
// anything may evict them.
void PlanApplier::Apply(const StepPlan& plan, TimePoint now) {
  for (const SequenceId id : plan.expired) Expire(id);
  for (const Preemption& preemption : plan.preempted) Preempt(preemption);
  for (const Admission& admission : plan.admitted) Admit(admission, now);
  for (const Admission& admission : plan.admitted) ReservePrompt(admission.id);
  for (const Admission& admission : plan.admitted) {
    if (Sequence* const one = core_.requests.Find(admission.id)) TokenEvictor::Prepare(core_, *one);
  }
  for (const SequenceId id : plan.swap_ins) {
    if (Sequence* const sequence = core_.requests.Find(id)) core_.copies.SwapIn(*sequence);
  }
  for (const SequenceId id : plan.restores) Restore(id);
}

void PlanApplier::Expire(SequenceId id) {
  Sequence* const sequence = core_.requests.Find(id);
  if (sequence == nullptr) return;
  core_.requests.End(sequence->request,
                     DeadlineExceeded("the deadline passed after {} of at most {} tokens",
                                      sequence->num_output(), sequence->request.spec.max_tokens));
}

void PlanApplier::Preempt(const Preemption& preemption) {
  Sequence& sequence = core_.requests.Get(preemption.id);
  RequestState& request = sequence.request;
  const bool swap = preemption.how == Preemption::How::kSwap;
  ++request.counts.preemptions;
  core_.store.Unexpect(sequence.id);
  LogDebug("preempt request={} sequence={} tokens={} how={}", request.spec.id, sequence.id,
           sequence.num_tokens(), swap ? "swap" : "recompute");
  if (swap) {
    if (core_.copies.SwapOut(sequence)) return;
    core_.scheduler.SwapFailed(sequence.id);
  }
  sequence.ForgetKv();
}

void PlanApplier::Admit(const Admission& admission, TimePoint now) {
  Sequence* const sequence = core_.requests.Find(admission.id);
  if (sequence == nullptr) return;
  const std::vector<int32_t>& tokens = sequence->rows.front().tokens;
  BlockTable& table = sequence->tables.emplace_back(core_.options.layout.block_tokens);
  const int64_t attached =
      core_.store.Attach(sequence->key, tokens, sequence->most_cached_tokens(), table);
  TANDEM_CHECK(attached >= admission.cached_tokens,
               "a cached prefix was evicted between its plan and its step");
  table.Truncate(admission.cached_tokens);
  core_.store.Expect(sequence->id, sequence->key, tokens);
  if (!sequence->request.prefilled) BeginPrefill(*sequence, admission.cached_tokens, now);
}

// Allocates all blocks of a prompt whose KV is sent while it is computed. Such a prompt cannot be
// preempted, so it must have its blocks before its first chunk.
void PlanApplier::ReservePrompt(SequenceId id) {
  Sequence* const sequence = core_.requests.Find(id);
  if (sequence == nullptr || !sequence->request.outgoing()) return;
  const absl::Status reserved =
      core_.store.Reserve(sequence->tables.front(), sequence->num_tokens());
  TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
}

void PlanApplier::BeginPrefill(Sequence& sequence, int32_t cached_tokens, TimePoint now) {
  RequestState& request = sequence.request;
  if (request.prefill_began != TimePoint{}) return;  // it began before a preemption
  request.stages.queue = now - request.accepted;
  request.prefill_began = now;
  request.counts.cached_tokens = cached_tokens;
  request.handoff_time_before = core_.sender.time_spent();
  if (request.outgoing()) core_.sender.Begin(sequence, cached_tokens);
}

void PlanApplier::Restore(SequenceId id) {
  Sequence* const sequence = core_.requests.Find(id);
  if (sequence == nullptr) return;
  const absl::Status status = core_.store.Restore(sequence->key, sequence->rows.front().tokens);
  if (status.ok()) return;
  LogDebug("sequence={} computes what the host has: {}", id, status.ToString());
}

}  // namespace tandem
