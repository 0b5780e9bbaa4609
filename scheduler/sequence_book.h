#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "scheduler/aging_queue.h"
#include "scheduler/policy.h"
#include "scheduler/sequence_state.h"
#include "scheduler/stats.h"

namespace tandem {

// All sequences of a scheduler by id, phase and deadline, the queue of those that still have tokens
// to prefill, and two sums over them: rows in use and tokens to prefill. CheckInvariants counts all
// of it again from the sequences.
//
// The fields that the queue and the sums depend on (spec, phase, computed and known tokens, order,
// aged) change only through Update and CountComputed; all other fields of a sequence belong to the
// caller.
// Thread: engine.
class SequenceBook {
 public:
  using Sequences = std::list<SequenceState>;
  // Refers to one sequence; valid until Remove, in whatever phase the sequence is.
  using Entry = Sequences::iterator;

  SequenceBook(std::unique_ptr<SchedulingPolicy> policy, Duration max_wait)
      : queue_(std::move(policy), max_wait) {}

  // Sets the present time, which holds for all calls until the next SetTime.
  void SetTime(TimePoint now) { now_ = now; }

  // Adds a sequence in `phase`. CHECKs that its id is new.
  Entry Add(const SequenceSpec& spec, Phase phase);
  // Adds a sequence that arrived together with `sequence`, is like it but for its id, and is in the
  // same phase.
  Entry AddSibling(Entry sequence, SequenceId id);
  void Remove(Entry sequence);

  // Applies change(SequenceState&) and moves the sequence to the end of `phase`.
  template <typename Change>
  void Update(Entry sequence, Phase phase, Change change) {
    Leave(*sequence);
    change(*sequence);
    Enter(sequence, phase);
  }
  void Move(Entry sequence, Phase phase) {
    Update(sequence, phase, [](SequenceState& /*unchanged*/) {});
  }
  // Records that the running sequence gives up the KV of `tokens` tokens of its prompt or of its
  // output.
  void Evict(Entry sequence, TokensOf part, int32_t tokens);
  // Moves the sequence back to phase waiting, to be computed from its first token on.
  void Restart(Entry sequence);
  // Counts `tokens` more computed tokens of the prefilling sequence, after which some are left.
  void CountComputed(Entry sequence, int32_t tokens);
  // Counts one decoded token of the running sequence, which moves to the end of its phase.
  void CountDecoded(Entry sequence) {
    sequence->computed_tokens = sequence->known_tokens++;
    Sequences& running = InPhase(Phase::kRunning);
    running.splice(running.end(), running, sequence);
  }

  // Finds a sequence by its id; null for an unknown id. The pointer is valid until the next Add or
  // Remove.
  const Entry* Find(SequenceId id) const {
    const auto place = sequences_.find(id);
    return place == sequences_.end() ? nullptr : &place->second;
  }
  // Finds a sequence by its id, and CHECKs that it is in `phase`.
  Entry Get(SequenceId id, Phase phase);
  bool Contains(SequenceId id) const { return sequences_.contains(id); }

  // The sequences in one phase, in order. Running sequences: the one that decoded longest ago comes
  // first. Other phases: the one that entered first comes first.
  Sequences& InPhase(Phase phase) { return phases_[static_cast<size_t>(phase)]; }
  const Sequences& InPhase(Phase phase) const { return phases_[static_cast<size_t>(phase)]; }
  int32_t Count(Phase phase) const { return static_cast<int32_t>(InPhase(phase).size()); }
  // Whether no sequence computes or is about to; parked sequences and copies may still hold blocks.
  bool NoneComputes() const {
    return Count(Phase::kRunning) + Count(Phase::kPrefilling) + Count(Phase::kSwappingIn) == 0;
  }

  // The queue of the sequences in phases waiting and prefilling.
  AgingQueue& queue() { return queue_; }
  // The sum of the widths of all sequences in phases prefilling, running, parked and swapping in.
  int32_t rows() const { return rows_; }

  // Removes one sequence whose deadline is not after now(), the earliest first, and returns its id.
  std::optional<SequenceId> RemoveExpired();
  TimePoint NextDeadline() const;

  // Counts of the sequences and their tokens; the fields about preemptions are left 0.
  SchedulerStats stats() const;
  // Counts everything anew from the sequences; INTERNAL says which count is wrong.
  absl::Status CheckInvariants(int32_t max_rows) const;

 private:
  void Leave(SequenceState& sequence);
  void Enter(Entry sequence, Phase phase);

  std::array<Sequences, kNumPhases> phases_;
  absl::flat_hash_map<SequenceId, Entry> sequences_;
  AgingQueue queue_;
  absl::btree_set<std::pair<TimePoint, SequenceId>> deadlines_;
  TimePoint now_{};
  int64_t backlog_tokens_ = 0;  // uncomputed tokens of waiting and prefilling sequences
  int32_t rows_ = 0;
  uint64_t next_order_ = 0;
};

}  // namespace tandem
