#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "transfer/framed/staging.h"

namespace tandem {

// The slots that the connections of a transport share for sending, and the order in which they get
// them. A connection gets a slot only while it holds fewer than are free, so that a connection whose
// peer does not read leaves some to others.
//
// A connection that asks for a slot
//   gets one   if more are free than it holds, and it has the turn or no connection waits;
//   waits      otherwise, if it holds none: the loop gives it a turn once a slot is free;
//   goes on    otherwise, with the slots that it holds, and asks again when it has sent them.
// Nobody passes a connection that waits.
// Thread: the loop's.
class OutboundStaging {
 public:
  explicit OutboundStaging(std::unique_ptr<StagingPool> pool) : pool_(std::move(pool)) {}

  StagingPool& pool() const { return *pool_; }

  // A slot for the connection `id`, which holds `held` slots; may be empty.
  StagedSlot Take(uint64_t id, size_t held);
  // The connection is closed.
  void Forget(uint64_t id);

  // Whether a connection waits and a slot is free.
  bool has_turn() const { return !waiting_.empty() && pool_->num_free() > 0; }
  // The connection that has the turn until EndTurn and waits no more; empty when there is none.
  std::optional<uint64_t> BeginTurn();
  void EndTurn() { turn_.reset(); }

 private:
  const std::unique_ptr<StagingPool> pool_;
  std::deque<uint64_t> waiting_;  // ids of connections, in the order in which they came
  std::optional<uint64_t> turn_;
};

}  // namespace tandem
