#pragma once

#include <set>

#include "scheduler/policy.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// Sequences in one fixed order, those that prefill apart from those that wait, so that a walk over
// the former does not pass a thousand of the latter.
class Line {
 public:
  using Before = bool (*)(const SequenceState&, const SequenceState&);

  explicit Line(Before before);
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void Add(const SequenceState& sequence);
  // The walk goes on behind it.
  void Remove(const SequenceState& sequence);
  bool empty() const { return prefilling_.empty() && waiting_.empty(); }

  void Rewind();
  bool HasNext(Turns turns) const;
  const SequenceState* Next(Turns turns);

 private:
  struct Order {
    Before before;
    bool operator()(const SequenceState* a, const SequenceState* b) const { return before(*a, *b); }
  };
  using Set = std::set<const SequenceState*, Order>;

  Set& SetOf(const SequenceState& sequence);

  const Before before_;
  Set prefilling_;
  Set waiting_;
  Set::const_iterator next_prefilling_;
  Set::const_iterator next_waiting_;
};

}  // namespace tandem
