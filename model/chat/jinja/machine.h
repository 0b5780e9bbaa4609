#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// A value of a template that may hold itself, or be the end of a long chain of such values.
class Kept {
 public:
  virtual ~Kept() = default;
  // Releases all values that it holds.
  virtual void Empty() = 0;
};

// The resources of one rendering: the steps that it may still take, and the time that the template
// may print. All work is paid for in steps, copied bytes included, so that no template runs for
// long. Thread: one.
class Machine {
 public:
  using Now = std::chrono::system_clock::time_point;
  Machine(int64_t max_steps, Now now) : max_steps_(max_steps), now_(now) {}
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // Takes steps from those that are left. INVALID_ARGUMENT once they are used up.
  absl::Status Spend(size_t steps = 1) {
    // Compared before it is added, because a template chooses `steps` freely and the sum could
    // overflow.
    if (steps > static_cast<size_t>(max_steps_ - steps_)) {
      steps_ = max_steps_;
      return OutOfSteps();
    }
    steps_ += static_cast<int64_t>(steps);
    return absl::OkStatus();
  }
  // Pays for making or reading a text of `bytes` bytes.
  absl::Status SpendBytes(size_t bytes) { return Spend(1 + bytes / kBytesPerStep); }

  // Pays for reading a value's text, such as to compare it or to look it up.
  absl::Status SpendOnReading(const Value& value) {
    return value.text() == nullptr ? absl::OkStatus() : Spend(value.text()->size() / kBytesPerStep);
  }

  int64_t steps() const { return steps_; }
  Now now() const { return now_; }

  // Namespaces may hold themselves; the machine empties all of them when it ends.
  Value MakeNamespace(std::shared_ptr<Namespace> value);
  // Takes a loop that the template kept beyond its end. Such loops may hold themselves or make long
  // chains, which would be freed recursively; the machine empties all of them when it ends.
  void KeepLoop(std::shared_ptr<Kept> loop) { loops_.push_back(std::move(loop)); }

 private:
  static constexpr size_t kBytesPerStep = 32;

  absl::Status OutOfSteps() const;

  const int64_t max_steps_;
  const Now now_;
  int64_t steps_ = 0;
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Kept>> loops_;
};

// The status of raise_exception, whose text is meant for the client as it is.
absl::Status Raised(std::string_view text);
bool IsRaised(const absl::Status& status);

}  // namespace tandem::jinja
