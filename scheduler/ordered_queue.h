#pragma once

#include <set>

#include "scheduler/policy.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// Waiting and prefilling sequences in one fixed order. The two phases are kept in two sets, so that
// an iteration over the prefilling sequences does not pass a thousand waiting ones.
class OrderedQueue {
 public:
  using Before = bool (*)(const SequenceState&, const SequenceState&);

  explicit OrderedQueue(Before before);
  OrderedQueue(const OrderedQueue&) = delete;
  OrderedQueue& operator=(const OrderedQueue&) = delete;

  void Add(const SequenceState& sequence);
  // Removes the sequence. An iteration that is under way continues with the sequence behind it.
  void Remove(const SequenceState& sequence);
  bool empty() const { return prefilling_.empty() && waiting_.empty(); }

  void Rewind();
  bool HasNext(AdmissionFilter filter) const;
  const SequenceState* Next(AdmissionFilter filter);

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
