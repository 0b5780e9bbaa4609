#include "transfer/framed/outbound_staging.h"

#include <algorithm>

namespace tandem {

StagedSlot OutboundStaging::Take(uint64_t id, size_t held) {
  const bool may = waiting_.empty() || turn_ == id;
  if (may && pool_->num_free() > held) return pool_->Take();
  if (held == 0 && std::ranges::find(waiting_, id) == waiting_.end()) waiting_.push_back(id);
  return StagedSlot();
}

void OutboundStaging::Forget(uint64_t id) { std::erase(waiting_, id); }

std::optional<uint64_t> OutboundStaging::BeginTurn() {
  if (!has_turn()) return std::nullopt;
  turn_ = waiting_.front();
  waiting_.pop_front();
  return turn_;
}

}  // namespace tandem
