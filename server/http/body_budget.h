#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace tandem {

// How many bytes the bodies of all requests may have together while they are received and until
// their handlers take them. Thread-safe.
class BodyBudget {
 public:
  explicit BodyBudget(size_t limit) : limit_(limit) {}

  // Takes `bytes` from the budget. Returns false, without an effect, when there is not enough room.
  [[nodiscard]] bool Take(size_t bytes) {
    if (used_.fetch_add(bytes) + bytes <= limit_) return true;
    used_ -= bytes;
    return false;
  }
  void GiveBack(size_t bytes) { used_ -= bytes; }

 private:
  const size_t limit_;
  std::atomic<size_t> used_ = 0;
};

// The part of a BodyBudget that one body has taken. It is given back when this is destroyed, by a
// handler that may outlive the server, so this keeps the budget alive.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  ~BodyShare() { budget_->GiveBack(bytes_); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  // Notes that the body has grown to `bytes`, which never shrink. False when the budget has no
  // room.
  [[nodiscard]] bool GrowTo(size_t bytes) {
    if (!budget_->Take(bytes - bytes_)) return false;
    bytes_ = bytes;
    return true;
  }

 private:
  const std::shared_ptr<BodyBudget> budget_;
  size_t bytes_ = 0;
};

}  // namespace tandem
