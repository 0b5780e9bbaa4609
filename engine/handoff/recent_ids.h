#pragma once

#include <cstddef>
#include <deque>

#include "absl/container/flat_hash_set.h"

namespace tandem {

// A set of the ids that were added most recently; older ones are forgotten. Thread-compatible.
template <typename Id>
class RecentIds {
 public:
  explicit RecentIds(size_t most) : most_(most) {}

  void Add(Id id) {
    ids_.insert(id);
    in_order_.push_back(id);
    if (in_order_.size() <= most_) return;
    ids_.erase(in_order_.front());
    in_order_.pop_front();
  }
  bool Has(Id id) const { return ids_.contains(id); }

 private:
  const size_t most_;
  absl::flat_hash_set<Id> ids_;
  std::deque<Id> in_order_;
};

}  // namespace tandem
