#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/clock.h"

namespace tandem {

// The receiving side's account of one connection: how much payload of the sender was consumed, and
// so how much more it may send.
// Thread: the loop's.
class ReceiveCredit {
 public:
  // The sender may have `window` bytes of payload under way. While payload arrives, the sender gets
  // an answer at least every `answer_every`.
  explicit ReceiveCredit(uint64_t window, Duration answer_every = std::chrono::seconds(1))
      : window_(window), answer_every_(answer_every) {}

  // `bytes` of payload arrive. Consume counts them once they have landed or were dropped.
  void Arriving(uint64_t bytes) { arriving_ += bytes; }
  void Consume() { consumed_ += std::exchange(arriving_, 0); }
  // A commit says how much payload was sent before it: whatever became of that payload, none of it
  // is under way any more. `sent_bytes` is less than what was consumed if a frame came twice.
  void Settle(uint64_t sent_bytes) { consumed_ = sent_bytes; }

  // The credit to send; empty while it is not worth a frame. kWorthAFrame is asked for after each
  // read of a payload. It gives new credit at once if that is enough. Once `answer_every` has
  // passed, it gives credit for what has just been consumed, or the latest credit again while a
  // payload is slow to arrive. kAll gives any credit that is new. kRepeat gives the credit even if
  // it is not new: the frame with it may have been lost.
  enum class Grant : uint8_t { kWorthAFrame, kAll, kRepeat };
  std::optional<uint64_t> TakeGrant(Grant grant, TimePoint now) {
    const uint64_t allowed = consumed_ + window_;
    const bool fresh = std::exchange(looked_at_, consumed_) != consumed_;
    const uint64_t worth = grant == Grant::kAll ? 1 : std::min(window_ / 4, kEnoughForAFrame);
    const bool enough = granted_ == 0 || allowed >= granted_ + worth;
    if (grant == Grant::kWorthAFrame && !enough) return TakeByTime(allowed, fresh, now);
    coming_since_ = kNoDeadline;
    if (grant != Grant::kRepeat && !enough) return std::nullopt;
    return granted_ = std::max(granted_, allowed);
  }

 private:
  // New credit of this size is worth a frame however large the window is, because the sender
  // measures the link by the credits that it gets (LinkMeter).
  static constexpr uint64_t kEnoughForAFrame = 4 << 20;

  // The sender takes a credit to be about payload that has just arrived (LinkMeter), so a credit is
  // sent for fresh payload or repeats what was sent.
  std::optional<uint64_t> TakeByTime(uint64_t allowed, bool fresh, TimePoint now) {
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

  const uint64_t window_;
  const Duration answer_every_;
  uint64_t arriving_ = 0;
  uint64_t consumed_ = 0;
  uint64_t granted_ = 0;
  uint64_t looked_at_ = 0;                // the value of consumed_ at the latest TakeGrant
  TimePoint coming_since_ = kNoDeadline;  // when payload that is not granted yet began to come
  TimePoint repeated_at_{};
};

}  // namespace tandem
