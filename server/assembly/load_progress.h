#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"

namespace tandem {

// Shows how much of the weights is loaded: a bar on a terminal, and everywhere one log line at the
// end.
// Thread: one at a time; other threads may log meanwhile.
class LoadProgressDisplay {
 public:
  explicit LoadProgressDisplay(std::string what);
  // Called as LoadProgress is: loading has ended once both numbers are equal.
  void Update(uint64_t loaded_bytes, uint64_t total_bytes);

 private:
  void Draw(int percent, uint64_t total_bytes);
  void Done(uint64_t total_bytes);

  const std::string what_;
  const TimePoint started_;
  const bool on_terminal_;
  int shown_percent_ = -1;
};

}  // namespace tandem
