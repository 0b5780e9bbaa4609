#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace tandem {

// How many bytes the bodies of all requests may have together while they are received and until their
// handlers take them. Thread-safe.
class BodyBudget {
 public:
  explicit BodyBudget(size_t limit) : limit_(limit) {}

  // False, and no effect, when there is no room for so many more.
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

// What one body has of it, until this is destroyed: by a handler that may outlive the server, so that
// it keeps the budget alive.
class BodyShare {
 public:
  explicit BodyShare(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  ~BodyShare() { budget_->GiveBack(bytes_); }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  // The body has so many bytes now, which are never fewer than before. False when there is no room.
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
