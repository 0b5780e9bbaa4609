#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "scheduler/line.h"
#include "scheduler/policy.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// The tenants of one priority, which take turns by deficit round robin. Credits are compared within
// a level only: between levels the priority decides.
// Thread: engine.
class FairLevel {
 public:
  void Add(const SequenceState& sequence);
  void Remove(const SequenceState& sequence);

  // Begins a walk, as SchedulingPolicy::Rewind. Returns false when the level can be deleted: no
  // sequence of it stands in line, and none was computed since the last walk, so that the debts that
  // it keeps are owed to nobody.
  bool Rewind();
  const SequenceState* Next(Turns turns);
  void Charge(uint64_t tenant, int64_t tokens);

 private:
  // What one tenant has in line.
  struct Share {
    Line line{&ArrivedBefore};
    int64_t credit = 0;
  };
  using Shares = std::map<uint64_t, Share>;

  template <typename Predicate>
  int64_t RoundsUntilOne(Predicate asked, int64_t least) const;
  void Grant(int64_t rounds);

  Shares shares_;
  uint64_t turn_ = 0;                        // the tenant that goes first in the next walk
  Shares::iterator cursor_ = shares_.end();  // whose turn it is in this one
  bool offered_ = false;                     // it was offered a turn and has not taken it
  bool charged_ = false;                     // a sequence was computed since the last Rewind
  int64_t rounds_ = 0;                       // of this walk, in which nobody took a turn yet
};

// Priority, then tenants by deficit round robin, then arrival.
class FairPolicy final : public SchedulingPolicy {
 public:
  void Add(const SequenceState& sequence) override { LevelOf(sequence).Add(sequence); }
  void Remove(const SequenceState& sequence) override { LevelOf(sequence).Remove(sequence); }
  void Rewind() override;
  const SequenceState* Next(Turns turns) override;
  void Charge(const SequenceState& sequence, int32_t tokens) override;
  bool Outranks(const SequenceState& a, const SequenceState& b) const override;

  // Every walk visits each level, so a client that makes up priorities must not leave any behind.
  size_t num_levels() const { return levels_.size(); }

 private:
  using Levels = std::map<int32_t, FairLevel, std::greater<>>;

  FairLevel& LevelOf(const SequenceState& sequence) { return levels_[sequence.spec.priority]; }

  Levels levels_;  // highest priority first
  Levels::iterator current_ = levels_.end();
};

}  // namespace tandem
