#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// Counts the bytes of all answers that clients have not read yet. Whole answers are queued in one
// piece; the limit keeps them from filling the memory when their clients do not read.
// Thread-safe.
class AnswerBuffers {
 public:
  explicit AnswerBuffers(size_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Adds a part of an answer that is sent whole: false when all answers together would exceed the
  // limit.
  [[nodiscard]] bool TryAdd(size_t bytes) {
    if (bytes_.fetch_add(bytes) + bytes <= limit_bytes_) return true;
    bytes_ -= bytes;
    ++refused_;
    return false;
  }
  // Adds a part of an answer whose stream has a limit of its own.
  void Add(size_t bytes) { bytes_ += bytes; }
  void Remove(size_t bytes) { bytes_ -= bytes; }
  // Counts an answer that was ended because its client did not read it in time.
  void CountUnread() { ++unread_; }

  v1::AnswerBufferUse Use() const {
    v1::AnswerBufferUse use;
    use.set_bytes(bytes_);
    use.set_limit_bytes(limit_bytes_);
    use.set_refused(refused_);
    use.set_unread(unread_);
    return use;
  }

 private:
  const size_t limit_bytes_;
  std::atomic<size_t> bytes_ = 0;
  std::atomic<uint64_t> refused_ = 0;
  std::atomic<uint64_t> unread_ = 0;
};

}  // namespace tandem
