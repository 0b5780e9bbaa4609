#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <list>
#include <span>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "scheduler/cache_view.h"
#include "scheduler/expected_output.h"
#include "scheduler/latency_model.h"
#include "scheduler/policy.h"
#include "scheduler/sequence_state.h"
#include "scheduler/step_plan.h"
#include "scheduler/turn_order.h"

namespace tandem {

struct SchedulerOptions {
  int32_t max_step_tokens = 512;  // budget of one step, decodes and prefill chunks together
  int32_t max_prefill_chunk = 0;  // tokens of one sequence in one step; 0: up to the budget
  int32_t max_sequences = 64;     // rows of all that is admitted: their widths added up
  int32_t max_waiting = 1024;
  int32_t total_blocks = 0;
  int32_t block_tokens = 16;
  SchedulingPolicyKind policy = SchedulingPolicyKind::kFair;
  int32_t max_skips = 64;  // how often the head of the queue may be overtaken for want of room
  Duration max_wait = std::chrono::seconds(30);  // what waited longer goes before everything else

  // INVALID_ARGUMENT naming the field.
  absl::Status Validate() const;
};

struct SchedulerStats {
  int32_t waiting = 0;
  int32_t prefilling = 0;
  int32_t running = 0;
  int32_t parked = 0;
  int32_t swapped = 0;                // on the host, or on the way there or back
  int64_t waiting_prompt_tokens = 0;  // of waiting and prefilling, not computed yet
  uint64_t preempted_recompute = 0;   // since the start
  uint64_t preempted_swap = 0;
};

// Decides what each step computes, from queues, budgets, the counts of the KV store and `now`: no
// device, no I/O, no clock of its own. Continuous batching: every running sequence decodes in every
// step (in turns, when they are more than the token budget), and what is left of the budget goes to
// prefill chunks of as many sequences as fit, in the order of the policy.
// A sequence is admitted when it is likely to fit to its end: outputs are expected to be as long as
// they turned out of late, and the blocks that all admitted then hold at the worst moment, counting
// what those that end before give back, must not exceed the pool (the estimate of R. Gong et al.,
// "Past-Future Scheduler for LLM Serving under SLA Guarantees", ASPLOS 2025). When blocks run out
// all the same, the lowest ranked sequence gives its own back and is computed again later, or its
// KV goes to the host and comes back, whichever takes less time. Nobody starves: what waited longer
// than max_wait goes first, and while it has no room nobody is admitted; the head of the queue is
// overtaken at most max_skips times; who ranks highest never gives way, so that it ends. Ids are
// the caller's: a new sequence must not have the id of one that is still known. Thread: engine.
// `latency` must outlive it.
class Scheduler {
 public:
  Scheduler(const SchedulerOptions& options, const LatencyModel& latency);

  // INVALID_ARGUMENT, with the numbers, when it could never fit.
  absl::Status CheckFits(const SequenceSpec& spec) const;

  // Queues a sequence to be prefilled here. RESOURCE_EXHAUSTED when the queue is full;
  // INVALID_ARGUMENT as CheckFits.
  absl::Status Enqueue(const SequenceSpec& spec, TimePoint now);

  // Admits at once a sequence whose prompt KV will arrive from elsewhere: its prompt's blocks can
  // be had now, and it stays parked until Activate. `view` knows its id. RESOURCE_EXHAUSTED when
  // there is no room to grow beside those admitted, those on the host and the head of the queue
  // (unless this one ranks higher); INVALID_ARGUMENT as CheckFits.
  absl::Status Reserve(const SequenceSpec& spec, const CacheView& view, TimePoint now);

  // The KV of a parked sequence's prompt is complete and its first output token is known: it
  // decodes from the next step on.
  void Activate(SequenceId id);

  // The place of a parked sequence passes to `heir`, which needs no more blocks than it and is
  // parked too. Unlike Finish and Reserve it cannot fail: nobody comes in between.
  void PassOn(SequenceId parked, const SequenceSpec& heir);

  // A running sequence keeps its blocks but decodes elsewhere. After the Advance of its last chunk.
  void Park(SequenceId id);

  // A parked sequence's request goes on behind what was said elsewhere, and the KV of its prompt is
  // complete: it splits into these, the first of which is itself. Each goes on alone, of width 1,
  // and computes what it knows but has no KV of.
  struct Resumed {
    SequenceId id;
    int32_t computed_tokens = 0;
    int32_t said_tokens = 0;  // behind the prompt; at least 1
  };
  void Resume(SequenceId parked, std::span<const Resumed> choices);

  // A running sequence splits into at most as many as it is wide: it and each child, which knows as
  // many tokens, go on alone, each of width 1.
  void Fork(SequenceId parent, std::span<const SequenceId> children);

  // The copies that preemptions and swap_ins of a plan asked for have ended. When one could not be
  // done, or was not begun, the sequence is computed again. Unknown ids are ignored: it has ended.
  void SwappedOut(SequenceId id);
  void SwappedIn(SequenceId id);
  void SwapFailed(SequenceId id);

  // The next step. What it decides about sequences holds at once: expired ones are forgotten,
  // preempted ones wait or swap out, admitted ones prefill from their cached tokens on, restores
  // are not asked for again. The caller must carry these out, or report SwapFailed. Prefills and
  // decodes are proposals: they count when Advance is called, and a plan whose computation was not
  // done is simply followed by another (its tokens stay charged to the fair shares). A plan that
  // computes nothing but gave blocks back (expired, preempted) is to be followed by another at
  // once; otherwise nothing can run before something is added, activated, finished or copied, or a
  // deadline passes.
  StepPlan Plan(TimePoint now, const CacheView& view);

  // `plan`, the latest, was computed: chunks and decodes count, sequences whose last chunk it held
  // now run. What was finished meanwhile is skipped.
  void Advance(const StepPlan& plan);

  // The sequence has ended, in whatever phase. Unknown ids are ignored.
  void Finish(SequenceId id);

  // The earliest deadline of any sequence, kNoDeadline when there is none: an idle engine wakes
  // then.
  TimePoint NextDeadline() const;

  bool Contains(SequenceId id) const { return sequences_.contains(id); }
  SchedulerStats stats() const;
  // Counts, queues and phases agree. INTERNAL says what does not.
  absl::Status CheckInvariants() const;

 private:
  using Sequences = std::list<SequenceState>;
  using Place = Sequences::iterator;

  struct TokenRange {
    int32_t begin = 0;
    int32_t end = 0;
  };

  // A sequence and the blocks that its next tokens take.
  struct Want {
    Place sequence;
    int32_t blocks = 0;
  };

  // What is expected of a sequence that is admitted.
  struct Future {
    int32_t left = 0;        // steps until it ends
    int32_t width = 0;       // rows that grow until then
    int32_t room = 0;        // tokens that each row can still store in its last block
    int32_t copies = 0;      // blocks that the rows' first tokens take besides
    int64_t gives_back = 0;  // of the blocks that it holds now
    static bool EndsLater(const Future& a, const Future& b) { return a.left > b.left; }
  };

  // ... and of all that are, those that end last first.
  struct Outlook {
    std::vector<Future> futures;
    int64_t owed = 0;  // blocks for known tokens that are not computed yet
    void Add(const Future& future);
  };

  class Rows;

  // A step while it is planned.
  struct Step {
    const CacheView& view;
    StepPlan plan;
    int32_t tokens = 0;  // left of the budget
    int32_t blocks = 0;  // left of the available ones
    int32_t rows = 0;    // left of max_sequences
    Outlook outlook;     // of those admitted; only where somebody may be
    Turns turns = Turns::kAll;
    bool attaches = false;                      // somebody admitted has a cached prefix
    const SequenceState* unattached = nullptr;  // is to begin at 0 although a prefix is cached
    int32_t fruitless = 0;                      // turns of the walk that came to nothing
    SequenceState* head = nullptr;              // the first that found no room
    const SequenceState* gate = nullptr;        // on the host; who ranks below it is not admitted
  };

  Sequences& InPhase(Phase phase) { return phases_[static_cast<size_t>(phase)]; }
  const Sequences& InPhase(Phase phase) const { return phases_[static_cast<size_t>(phase)]; }
  int32_t Count(Phase phase) const { return static_cast<int32_t>(InPhase(phase).size()); }

  // scheduler.cc: who is known, and in which phase.
  Place Find(SequenceId id, Phase phase);
  Place Add(const SequenceSpec& spec, Phase phase);
  void Remove(Place sequence);
  // From one phase to another; whatever the books hold of a sequence changes only in between.
  void Leave(SequenceState& sequence);
  void Enter(Place sequence, Phase phase);
  void Move(Place sequence, Phase phase);
  void ComputeAgain(Place sequence);
  const SequenceState* WaitingHead();

  // growth.cc: blocks at full and at expected length.
  int64_t BlocksAt(const SequenceSpec& spec, int64_t tokens) const;
  int64_t MostBlocks(const SequenceSpec& spec) const;
  Future FutureOf(const SequenceState& sequence) const;
  Outlook OutlookOfAdmitted(const CacheView& view) const;
  int64_t PeakGrowth(const Outlook& outlook, const Future& newcomer) const;

  // plan.cc
  void ExpirePassed(Step& step);
  void PlanDecodes(Step& step);
  void PlanSwapIns(Step& step);
  void PlanPrefills(Step& step);
  bool PlanChunk(Step& step, const SequenceState& sequence, int32_t begin);
  void Consider(Step& step, SequenceState& sequence);
  bool RestoresPrefix(Step& step, SequenceState& sequence, const CachedPrefix& prefix) const;
  int32_t AttachedTokens(Step& step, const SequenceState& sequence,
                         const CachedPrefix& prefix) const;
  bool HasRoomFor(const Step& step, const SequenceState& sequence) const;
  void FindNoRoom(Step& step, SequenceState& sequence);
  void CountFruitless(Step& step);
  void Admit(const Admission& admission);
  bool NobodyComputes(const Step& step) const;
  int64_t BlocksTo(const Step& step, const SequenceState& sequence, int32_t end) const;
  TokenRange FittingChunk(const Step& step, const SequenceState& sequence, int32_t begin) const;
  void AdvanceChunk(const PrefillChunk& chunk);
  void AdvanceDecode(SequenceId id);

  // preemption.cc
  void MakeRoom(Step& step, std::vector<Want>& wants);
  bool UnblockPrefills(Step& step);
  Place LowestRanked();
  void CheckFitsAlone(const CacheView& view);
  void Preempt(Step& step, Place victim);
  bool SwapIsCheaper(const SequenceState& victim, const CacheView& view) const;

  const SchedulerOptions options_;
  const LatencyModel& latency_;
  std::array<Sequences, kNumPhases> phases_;  // running: who decoded longest ago comes first
  absl::flat_hash_map<SequenceId, Place> sequences_;
  TurnOrder order_;  // those waiting and prefilling
  ExpectedOutput expected_output_;
  absl::btree_set<std::pair<TimePoint, SequenceId>> deadlines_;
  TimePoint now_{};             // the latest that was told
  int64_t backlog_tokens_ = 0;  // of waiting and prefilling, not computed yet
  int32_t rows_ = 0;            // of prefilling, running, parked and swapping in
  uint64_t next_order_ = 0;
  uint64_t preempted_recompute_ = 0;
  uint64_t preempted_swap_ = 0;
};

}  // namespace tandem
