#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.h"
#include "scheduler/ordered_queue.h"
#include "scheduler/policy.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// A scheduling policy with a bound on waiting: a sequence that has waited longer than max_wait in
// all goes before every other one, first come first served, whatever its priority, tenant or
// deadline. Such a sequence stays aged until it ends, so it also outranks the others when blocks
// run out.
// Thread: engine.
class AgingQueue {
 public:
  AgingQueue(std::unique_ptr<SchedulingPolicy> policy, Duration max_wait);

  // Adds a sequence in phase waiting or prefilling, where it stays from `now` on, until Remove.
  void Add(SequenceState& sequence, TimePoint now);
  void Remove(SequenceState& sequence, TimePoint now);

  // Marks the sequences that have waited too long at `now`, which age from then on. Called before
  // the iteration of a step.
  void Age(TimePoint now);

  // The waiting sequence that is next in order at `now`; null when no sequence waits. Not during an
  // iteration.
  const SequenceState* FirstWaiting(TimePoint now);

  // Rewind, Next, Charge and Outranks do the same as in SchedulingPolicy, except that aged
  // sequences go before all others.
  void Rewind();
  const SequenceState* Next(AdmissionFilter filter);
  void Charge(const SequenceState& sequence, int32_t tokens) { policy_->Charge(sequence, tokens); }
  bool Outranks(const SequenceState& a, const SequenceState& b) const;

  int64_t size() const { return size_; }

 private:
  struct EarlierThenArrival {
    using Entry = std::pair<TimePoint, SequenceState*>;
    bool operator()(const Entry& a, const Entry& b) const {
      return a.first != b.first ? a.first < b.first : ArrivedBefore(*a.second, *b.second);
    }
  };

  TimePoint AgesAt(const SequenceState& sequence) const;

  const std::unique_ptr<SchedulingPolicy> policy_;
  const Duration max_wait_;
  OrderedQueue aged_{&ArrivedBefore};
  // The waiting sequences that are not aged yet, ordered by the time at which they will be.
  std::set<EarlierThenArrival::Entry, EarlierThenArrival> aging_;
  int64_t size_ = 0;
};

}  // namespace tandem
