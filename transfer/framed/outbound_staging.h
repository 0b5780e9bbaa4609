#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "transfer/framed/staging.h"

namespace tandem {

// The slots that the connections of a transport share for what they send, and who gets the next.
// A connection gets one only while it holds fewer than are free, so that one whose peer does not
// read leaves some to others. One that holds none and gets none waits; nobody passes those that do.
//
// A connection that wants a slot:
//   gets it   it has the turn or nobody waits, and more are free than it holds
//   waits     else, where it holds none: the loop gives it a turn once a slot is free
//   goes on   else, with those that it holds: it asks again when it has sent them
// Thread: the loop's.
class OutboundStaging {
 public:
  explicit OutboundStaging(std::unique_ptr<StagingPool> pool) : pool_(std::move(pool)) {}

  StagingPool& pool() const { return *pool_; }

  // For the connection that the loop knows as `id` and that holds `held` slots; may be empty.
  StagedSlot Take(uint64_t id, size_t held);
  // It is closed.
  void Forget(uint64_t id);

  // Whether somebody waits for what is there now.
  bool has_turn() const { return !waiting_.empty() && pool_->num_free() > 0; }
  // Who gets it: advanced by the loop before EndTurn, it waits no more. Empty: nobody.
  std::optional<uint64_t> BeginTurn();
  void EndTurn() { turn_.reset(); }

 private:
  const std::unique_ptr<StagingPool> pool_;
  std::deque<uint64_t> waiting_;  // the first to come first
  std::optional<uint64_t> turn_;
};

}  // namespace tandem
