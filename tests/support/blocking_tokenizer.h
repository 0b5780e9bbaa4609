#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/support/letter_tokenizer.h"

namespace tandem {

// A LetterTokenizer that takes as long over one text as the test wants.
class BlockingTokenizer final : public LetterTokenizer {
 public:
  explicit BlockingTokenizer(std::string blocked) : blocked_text_(std::move(blocked)) {}

  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options) const override {
    ++encoded_;
    if (text == blocked_text_) {
      blocked_.Notify();
      unblocked_.WaitForNotification();
    }
    return LetterTokenizer::Encode(text, options);
  }

  void WaitUntilBlocked() const { blocked_.WaitForNotification(); }
  void Unblock() { unblocked_.Notify(); }
  // The texts that Encode was called with.
  int encoded() const { return encoded_; }

 private:
  const std::string blocked_text_;
  mutable std::atomic<int> encoded_ = 0;
  mutable absl::Notification blocked_;
  absl::Notification unblocked_;
};

}  // namespace tandem
