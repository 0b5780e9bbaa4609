#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include "base/clock.h"
#include "scheduler/line.h"
#include "scheduler/policy.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// A policy with an end to patience: what has waited longer than max_wait in all goes before
// everything else, first come first served, whatever its priority, tenant or deadline. Once aged, a
// sequence stays so: it also keeps its blocks before those that are not.
// Thread: engine.
class TurnOrder {
 public:
  TurnOrder(std::unique_ptr<SchedulingPolicy> policy, Duration max_wait);

  // The sequence is in phase waiting or prefilling from `now` on; no longer.
  void Add(SequenceState& sequence, TimePoint now);
  void Remove(SequenceState& sequence, TimePoint now);

  // Before a walk: who has waited too long by now.
  void Age(TimePoint now);

  // As SchedulingPolicy.
  void Rewind();
  const SequenceState* Next(Turns turns);
  void Charge(const SequenceState& sequence, int32_t tokens) { policy_->Charge(sequence, tokens); }
  bool Outranks(const SequenceState& a, const SequenceState& b) const;

  // Sequences in here.
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
  Line aged_{&ArrivedBefore};
  std::set<EarlierThenArrival::Entry, EarlierThenArrival> aging_;  // waiting and not yet aged
  int64_t size_ = 0;
};

}  // namespace tandem
