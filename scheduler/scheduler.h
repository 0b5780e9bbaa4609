#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "scheduler/sequence_state.h"
#include "scheduler/step_plan.h"

namespace tandem {

struct SchedulerOptions {
  int32_t max_step_tokens = 512;  // budget of one step, decodes and prefill chunks together
  int32_t max_prefill_chunk = 0;  // tokens of one sequence in one step; 0: up to the budget
  int32_t max_sequences = 64;     // prefilling, running and parked together
  int32_t max_waiting = 1024;
  int32_t total_blocks = 0;
  int32_t block_tokens = 16;

  // INVALID_ARGUMENT naming the field.
  absl::Status Validate() const;
};

struct SchedulerStats {
  int32_t waiting = 0;
  int32_t prefilling = 0;
  int32_t running = 0;
  int32_t parked = 0;
  int64_t waiting_prompt_tokens = 0;  // of waiting and prefilling, not computed yet
  int32_t promised_blocks = 0;        // of those admitted, at their full length
};

// Decides what each step computes, from queues, budgets and `now`: no device, no I/O, no clock of
// its own. Continuous batching: every running sequence decodes one token in every step (in turns,
// when they are more than the budget), and what is left of the token budget goes to prefill chunks,
// of as many sequences as fit, in the order of (priority, arrival). A sequence is admitted only
// when its blocks at full length can be promised, so that what runs never lacks a block. The head
// of the queue is not overtaken: what waits longest at the highest priority goes next.
// Ids are the caller's: a new sequence must not have the id of one that is still known.
// Thread: engine.
class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Queues a sequence to be prefilled here. RESOURCE_EXHAUSTED when the queue is full;
  // INVALID_ARGUMENT, with the numbers, when it could never fit into the pool.
  absl::Status Enqueue(const SequenceSpec& spec);

  // Promises blocks at once for a sequence whose prompt KV will arrive from elsewhere; it is parked
  // until Activate. RESOURCE_EXHAUSTED when there is no room now beside the head of the queue
  // (unless this one has the higher priority), INVALID_ARGUMENT as Enqueue.
  absl::Status Reserve(const SequenceSpec& spec);

  // The KV of a parked sequence is complete: it decodes from the next step on.
  void Activate(SequenceId id);

  // The promise of a parked sequence passes to `heir`, which needs no more blocks than it and is
  // parked too. Unlike Finish and Reserve it cannot fail: nobody comes in between.
  void PassOn(SequenceId parked, const SequenceSpec& heir);

  // A running sequence keeps its blocks but decodes elsewhere. After the Advance of its last chunk.
  void Park(SequenceId id);

  // The next step: forgets what has expired and admits what is to start. Does not change what is
  // computed: call Advance once the plan was executed; a plan that was not is made again.
  StepPlan Plan(TimePoint now);

  // `plan` was executed: chunks count as computed, sequences whose last chunk it held now run.
  // What was finished meanwhile is skipped.
  void Advance(const StepPlan& plan);

  // The sequence has ended, in whatever phase; its promise is given back. Unknown ids are ignored.
  void Finish(SequenceId id);

  // The earliest deadline of any sequence, kNoDeadline when there is none: an idle engine wakes
  // then.
  TimePoint NextDeadline() const;

  bool Contains(SequenceId id) const { return sequences_.contains(id); }
  // Whether a step would compute something.
  bool HasWork() const;
  SchedulerStats stats() const;
  // Promises add up, queues and phases agree. INTERNAL says what does not.
  absl::Status CheckInvariants() const;

 private:
  int32_t BlocksFor(const SequenceSpec& spec) const;
  absl::Status CheckFits(const SequenceSpec& spec) const;
  bool HasRoomFor(const SequenceSpec& spec) const;
  // Whether a goes before b.
  bool Precedes(SequenceId a, SequenceId b) const;
  void InsertInOrder(std::vector<SequenceId>& queue, SequenceId id) const;
  void EraseInOrder(std::vector<SequenceId>& queue, SequenceId id) const;

  SequenceState& Add(const SequenceSpec& spec, Phase phase);
  void ExpirePassed(TimePoint now, StepPlan& plan);
  void PlanDecodes(StepPlan& plan, int32_t& budget) const;
  void PlanPrefills(StepPlan& plan, int32_t budget);
  void AdvanceChunk(const PrefillChunk& chunk);
  void RotateRunning(const StepPlan& plan);
  absl::Status CheckQueue(const std::vector<SequenceId>& queue, Phase phase) const;

  const SchedulerOptions options_;
  absl::flat_hash_map<SequenceId, SequenceState> sequences_;
  std::vector<SequenceId> waiting_;     // (priority, arrival) order
  std::vector<SequenceId> prefilling_;  // likewise
  std::vector<SequenceId> running_;     // who decoded longest ago comes first
  absl::btree_set<std::pair<TimePoint, SequenceId>> deadlines_;
  int64_t waiting_prompt_tokens_ = 0;
  int32_t promised_blocks_ = 0;
  int32_t num_parked_ = 0;
  uint64_t next_arrival_ = 0;
};

}  // namespace tandem
