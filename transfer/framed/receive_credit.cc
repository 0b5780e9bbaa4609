#include "transfer/framed/receive_credit.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// However large the window is: the sender measures the link by its credits (LinkMeter).
constexpr uint64_t kEnoughForAFrame = 4 << 20;

}  // namespace

void ReceiveCredit::Consume() { consumed_ += std::exchange(arriving_, 0); }

void ReceiveCredit::Settle(uint64_t sent_bytes) { consumed_ = sent_bytes; }

std::optional<uint64_t> ReceiveCredit::TakeGrant(Grant grant, TimePoint now) {
  const uint64_t allowed = consumed_ + window_;
  const bool fresh = std::exchange(looked_at_, consumed_) != consumed_;
  const uint64_t worth = grant == Grant::kAll ? 1 : std::min(window_ / 4, kEnoughForAFrame);
  const bool enough = granted_ == 0 || allowed >= granted_ + worth;
  if (grant == Grant::kWorthAFrame && !enough) return TakeByTime(allowed, fresh, now);
  coming_since_ = kNoDeadline;
  if (grant != Grant::kRepeat && !enough) return std::nullopt;
  return granted_ = std::max(granted_, allowed);
}

// The sender takes a credit to be about payload that has just arrived (LinkMeter), so it is told of
// fresh payload or of nothing new.
std::optional<uint64_t> ReceiveCredit::TakeByTime(uint64_t allowed, bool fresh, TimePoint now) {
  coming_since_ = std::min(coming_since_, now);
  if (now - coming_since_ < answer_every_) return std::nullopt;
  if (fresh) {
    coming_since_ = now;
    return granted_ = std::max(granted_, allowed);
  }
  if (now - repeated_at_ < answer_every_) return std::nullopt;
  repeated_at_ = now;
  return granted_;
}

}  // namespace tandem
