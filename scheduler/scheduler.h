#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/clock.h"
#include "scheduler/cache_view.h"
#include "scheduler/forecast.h"
#include "scheduler/latency_model/step_learner.h"
#include "scheduler/options.h"
#include "scheduler/sequence_book.h"
#include "scheduler/sequence_state.h"
#include "scheduler/stats.h"
#include "scheduler/step_plan.h"
#include "scheduler/step_planner.h"

namespace tandem {

// Decides what each step computes, from queues, budgets, the counts of the KV store and the time:
// no device, no I/O, no clock of its own. Batching is continuous: every running sequence decodes in
// every step (in turns, when they are more than the token budget), and the rest of the budget goes
// to prefill chunks of as many sequences as fit, in the order of the policy.
//
// A sequence is admitted when the forecast says that it fits until it ends: outputs are expected to
// be as long as recent ones, and the blocks that all admitted sequences hold at the worst moment
// must not exceed the pool (scheduler/memory_forecast.h). When blocks run out all the same, the
// lowest ranked sequence is preempted (scheduler/preempter.h).
//
// No sequence starves. One that waited longer than max_wait goes first, and while it has no room no
// other is admitted; the first one without room is overtaken at most max_skips times; the highest
// ranked one is never preempted.
//
// Ids are chosen by the caller: a new sequence must not have the id of a known one.
// Thread: engine. `latency` must outlive it.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const StepLearner& latency);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // INVALID_ARGUMENT, with the numbers, when the sequence could never fit into the pool or the
  // limits.
  absl::Status CheckFits(const SequenceSpec& spec) const;

  // Queues a sequence to be prefilled here. RESOURCE_EXHAUSTED when the queue is full; otherwise
  // errors as CheckFits.
  absl::Status Enqueue(const SequenceSpec& spec, TimePoint now);

  // Admits a sequence at once whose prompt KV will arrive from another worker. The blocks of its
  // prompt are available now, and it stays parked until Activate or Resume. `view` knows its id.
  // RESOURCE_EXHAUSTED when there is no room to grow beside the admitted sequences, those on the
  // host and the first waiting one (the latter two count unless this one ranks higher); otherwise
  // errors as CheckFits.
  absl::Status Reserve(const SequenceSpec& spec, const CacheView& view, TimePoint now);

  // Lets a parked sequence decode from the next step on: the KV of its prompt is complete, and its
  // first output token is known.
  void Activate(SequenceId id);

  // Ends a parked sequence, whose blocks and rank `successor` takes over, parked as well. The
  // successor needs no more blocks than its predecessor, so this cannot fail.
  void TransferTo(SequenceId parked, const SequenceSpec& successor);

  // Records that a running sequence has given up the KV of `tokens` tokens of its prompt, or of its
  // output in each of its rows. Not to be called between the plan of its last chunk and Advance.
  void Evict(SequenceId id, TokensOf part, int32_t tokens);

  // Parks a running sequence, which keeps its blocks, because it decodes elsewhere. Not to be
  // called between the plan of its last chunk and Advance.
  void Park(SequenceId id);

  // One choice of a request whose first output tokens another worker emitted.
  struct Resumed {
    SequenceId id;
    int32_t computed_tokens = 0;
    int32_t emitted_tokens = 0;  // output tokens behind the prompt; at least 1
  };
  // Continues the request of a parked sequence, whose prompt has all of its KV, behind tokens that
  // another worker emitted: the sequence splits into `choices`, the first of which is itself. Each
  // has width 1 and computes the tokens that it knows and has no KV of.
  void Resume(SequenceId parked, std::span<const Resumed> choices);

  // Splits a running sequence into itself and `children`, at most as many in all as it is wide.
  // Each child knows as many tokens as the parent, and each has width 1.
  void Fork(SequenceId parent, std::span<const SequenceId> children);

  // Reports the end of the copies that the preemptions and swap_ins of a plan requested. A sequence
  // whose copy failed, or was not begun, is computed again. Ids of sequences that have ended are
  // ignored.
  void SwappedOut(SequenceId id);
  void SwappedIn(SequenceId id);
  void SwapFailed(SequenceId id);

  // Plans the next step. Its decisions about sequences take effect at once: expired ones are
  // forgotten, preempted ones wait or swap out, admitted ones prefill from their cached tokens on,
  // and restores are not requested again. The caller must carry out these decisions, or report
  // SwapFailed. Prefills and decodes are proposals that count when Advance is called. A plan that
  // was not computed is simply followed by another; its tokens stay charged to the fair shares. A
  // plan that computes nothing but frees blocks (expired, preempted) is to be followed by another
  // at once. After any other plan that computes nothing, nothing can run before a sequence is
  // added, activated, finished or copied, or a deadline passes.
  StepPlan Plan(TimePoint now, const CacheView& view);

  // Records that the latest plan was computed: its chunks and decodes count, and sequences whose
  // last chunk it held run from now on. Sequences that were finished meanwhile are skipped.
  void Advance(const StepPlan& plan);

  // Forgets a sequence that has ended, in whatever phase it is. Unknown ids are ignored.
  void Finish(SequenceId id);

  // The earliest deadline of all sequences, at which an idle engine wakes; kNoDeadline when there
  // is none.
  TimePoint NextDeadline() const { return book_.NextDeadline(); }

  bool Contains(SequenceId id) const { return book_.Contains(id); }
  SchedulerStats stats() const;
  // Compares all counts, queues and phases with the sequences themselves; INTERNAL says which one
  // is wrong.
  absl::Status CheckInvariants() const { return book_.CheckInvariants(options_.max_sequences); }

 private:
  absl::Status CheckRoom(const SequenceState& newcomer, const CacheView& view, TimePoint now);
  void AdvanceChunk(const PrefillChunk& chunk);

  const SchedulerOptions options_;
  SequenceBook book_;
  Forecast forecast_;
  StepPlanner planner_;
};

}  // namespace tandem
