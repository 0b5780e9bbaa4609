#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "scheduler/ordered_queue.h"
#include "scheduler/policy.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// The tenants of one priority, served by deficit round robin. Credits are compared only within a
// level: between levels the priority decides.
// Thread: engine.
class FairLevel {
 public:
  void Add(const SequenceState& sequence);
  void Remove(const SequenceState& sequence);

  // Begins an iteration, as SchedulingPolicy::Rewind. Returns false when the level can be deleted:
  // it has no sequence, and none of its sequences computed since the last iteration, so that no
  // tenant is left to whom the debts in it are owed.
  bool Rewind();
  const SequenceState* Next(AdmissionFilter filter);
  void Charge(uint64_t id, int64_t tokens);

 private:
  struct TenantQueue {
    OrderedQueue queue{&ArrivedBefore};
    int64_t credit = 0;  // tokens; negative: a debt
  };
  using Tenants = std::map<uint64_t, TenantQueue>;

  template <typename Predicate>
  int64_t RoundsUntilOne(Predicate predicate, int64_t least) const;
  void Grant(int64_t rounds);

  Tenants tenants_;
  uint64_t first_tenant_ = 0;  // id of the tenant that goes first in the next iteration
  Tenants::iterator cursor_ = tenants_.end();  // the tenant whose turn it is in this iteration
  bool offered_ = false;  // Next returned a sequence at cursor_, and it was not charged yet
  bool charged_ = false;  // whether a sequence of this level was charged since the last Rewind
  int64_t rounds_ = 0;    // rounds of this iteration in which no tenant has used a turn yet
};

// Orders sequences by priority, then their tenants by deficit round robin, then by arrival.
class FairPolicy final : public SchedulingPolicy {
 public:
  void Add(const SequenceState& sequence) override { LevelOf(sequence).Add(sequence); }
  void Remove(const SequenceState& sequence) override { LevelOf(sequence).Remove(sequence); }
  void Rewind() override;
  const SequenceState* Next(AdmissionFilter filter) override;
  void Charge(const SequenceState& sequence, int32_t tokens) override;
  bool Outranks(const SequenceState& a, const SequenceState& b) const override;

  // The number of priorities that are kept. Every iteration visits each level, so a client that
  // invents priorities must not leave levels behind.
  size_t num_levels() const { return levels_.size(); }

 private:
  using Levels = std::map<int32_t, FairLevel, std::greater<>>;

  FairLevel& LevelOf(const SequenceState& sequence) { return levels_[sequence.spec.priority]; }

  Levels levels_;  // highest priority first
  Levels::iterator current_ = levels_.end();
};

}  // namespace tandem
