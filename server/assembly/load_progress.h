#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"

namespace tandem {

// Shows how far the weights are: a bar on a terminal, one log line at the end everywhere.
// Thread: one at a time; others may log meanwhile.
class LoadProgressDisplay {
 public:
  explicit LoadProgressDisplay(std::string what);
  // As LoadProgress: equal numbers are the end.
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
