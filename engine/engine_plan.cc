// What a plan changes before its step is computed: who gives blocks back, who gets some.

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "engine/engine_loop.h"

namespace tandem {

// Cached prefixes are attached before anything may evict them.
void EngineLoop::Apply(const StepPlan& plan, TimePoint now) {
  for (const SequenceId id : plan.expired) Expire(id);
  for (const Preemption& preemption : plan.preempted) Preempt(preemption);
  for (const Admission& admission : plan.admitted) Admit(admission, now);
  for (const Admission& admission : plan.admitted) ReservePrompt(admission.id);
  for (const SequenceId id : plan.swap_ins) StartSwapIn(id);
  for (const SequenceId id : plan.restores) {
    if (Find(id) == nullptr) continue;
    Sequence& sequence = *Find(id);
    const absl::Status status = store_.Restore(sequence.key, sequence.rows.front().tokens);
    if (!status.ok()) {
      LogDebug("sequence={} computes what the host has: {}", id, status.ToString());
    }
  }
}

void EngineLoop::Expire(SequenceId id) {
  Sequence* const sequence = Find(id);
  if (sequence == nullptr) return;  // its request ended with another of its sequences
  End(sequence->request,
      DeadlineExceeded("the deadline passed after {} of at most {} tokens", sequence->num_output(),
                       sequence->request.spec.max_tokens));
}

void EngineLoop::Preempt(const Preemption& preemption) {
  Sequence& sequence = *Find(preemption.id);
  RequestState& request = sequence.request;
  ++request.preemptions;
  store_.Unexpect(sequence.id);
  LogDebug("preempt request={} sequence={} tokens={} how={}", request.spec.id, sequence.id,
           sequence.num_tokens(), preemption.how == Preemption::How::kSwap ? "swap" : "recompute");
  if (preemption.how == Preemption::How::kSwap) {
    absl::StatusOr<SwapId> swap = store_.SwapOut(sequence.tables);
    if (swap.ok()) {
      sequence.tables.clear();
      sequence.swap = *swap;
      swaps_.emplace(*swap, sequence.id);
      return;
    }
    LogWarn("sequence={} is computed again: {}", sequence.id, swap.status().ToString());
    scheduler_.SwapFailed(sequence.id);
  }
  ForgetKv(sequence);
}

// Its tokens will be computed again. What a search found so far is found again.
void EngineLoop::ForgetKv(Sequence& sequence) {
  sequence.tables.clear();
  RequestState& request = sequence.request;
  if (!request.search) return;
  request.RestartSearch();
  sequence.rows.assign(1, {.tokens = request.spec.prompt});
}

void EngineLoop::Admit(const Admission& admission, TimePoint now) {
  Sequence* const sequence = Find(admission.id);
  if (sequence == nullptr) return;  // its request has just expired
  const std::vector<int32_t>& tokens = sequence->rows.front().tokens;
  BlockTable& table = sequence->tables.emplace_back(options_.layout.block_tokens);
  const int64_t attached = store_.Attach(sequence->key, tokens, sequence->num_tokens() - 1, table);
  TANDEM_CHECK(attached >= admission.cached_tokens, "a prefix went while it was planned with");
  table.Truncate(admission.cached_tokens);
  store_.Expect(sequence->id, sequence->key, tokens);
  if (!sequence->request.prefilled) BeginPrefill(*sequence, admission.cached_tokens, now);
}

// A prompt whose KV is sent while it is computed is not preempted, so it must not come to lack
// blocks.
void EngineLoop::ReservePrompt(SequenceId id) {
  Sequence* const sequence = Find(id);
  if (sequence == nullptr || !sequence->request.outgoing) return;
  const absl::Status reserved = store_.Reserve(sequence->tables.front(), sequence->num_tokens());
  TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
}

void EngineLoop::BeginPrefill(Sequence& sequence, int32_t cached_tokens, TimePoint now) {
  RequestState& request = sequence.request;
  if (request.prefill_began != TimePoint{}) return;  // preempted since
  request.stages.queue = now - request.accepted;
  request.prefill_began = now;
  request.cached_tokens = cached_tokens;
  request.handoff_time_before = sender_.time_spent();
  if (request.outgoing) sender_.Begin(sequence, cached_tokens);
}

void EngineLoop::StartSwapIn(SequenceId id) {
  Sequence* const sequence = Find(id);
  if (sequence == nullptr) return;
  const absl::Status status = store_.SwapIn(*sequence->swap);
  TANDEM_CHECK(status.ok(), status.ToString());
}

// What a swap costs is known before the first preemption asks: a few are done at the start, with no
// step before they have ended.
void EngineLoop::MeasureCopies() {
  if (options_.host_bytes == 0) return;
  for (const int32_t blocks : {8, 1, 8, 1}) {
    StartProbe(blocks);
    while (probe_) HandleAll(AwaitMessages());
  }
}

void EngineLoop::StartProbe(int32_t blocks) {
  std::vector<BlockTable> tables;
  tables.emplace_back(options_.layout.block_tokens);
  const int32_t tokens = blocks * options_.layout.block_tokens;
  if (!store_.Reserve(tables.front(), tokens).ok()) return;  // a pool of less than that
  const absl::StatusOr<SwapId> swap = store_.SwapOut(tables);
  if (swap.ok()) probe_ = *swap;
}

void EngineLoop::GoOn(const KvCompletion& probe) {
  const bool out = probe.kind == KvCompletion::Kind::kSwapOut;
  if (out && probe.status.ok() && store_.SwapIn(*probe_).ok()) return;
  if (!out && probe.status.ok()) {
    store_.TakeSwapped(*probe_);
  } else {
    store_.DropSwapped(*probe_);
  }
  probe_.reset();
}

void EngineLoop::Handle(const KvCompletion& completion) {
  if (completion.status.ok()) {
    latency_.ObserveCopy(completion.blocks, completion.took);
    counts_.host_copied_blocks += static_cast<uint64_t>(completion.blocks);
    counts_.host_copy_time += completion.took;
  }
  const bool out = completion.kind == KvCompletion::Kind::kSwapOut;
  if (probe_ && completion.swap == *probe_) return GoOn(completion);
  if (!out && completion.kind != KvCompletion::Kind::kSwapIn) return;
  const auto place = swaps_.find(completion.swap);
  if (place == swaps_.end()) return;  // its request has ended
  Sequence& sequence = *Find(place->second);
  if (out && completion.status.ok()) return scheduler_.SwappedOut(sequence.id);
  if (completion.status.ok()) {
    sequence.tables = store_.TakeSwapped(completion.swap);
    scheduler_.SwappedIn(sequence.id);
  } else {
    LogError("sequence={} is computed again: {}", sequence.id, completion.status.ToString());
    store_.DropSwapped(completion.swap);
    ForgetKv(sequence);
    scheduler_.SwapFailed(sequence.id);
  }
  sequence.swap.reset();
  swaps_.erase(place);
}

}  // namespace tandem
