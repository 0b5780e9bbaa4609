#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/clock.h"

namespace tandem {

// Shows how far the weights are: a bar on a terminal, one log line at the end everywhere.
class LoadProgressDisplay {
 public:
  explicit LoadProgressDisplay(std::string what);
  void Update(uint64_t loaded_bytes, uint64_t total_bytes);
  void Done();

 private:
  const std::string what_;
  const TimePoint started_;
  const bool on_terminal_;
  uint64_t loaded_bytes_ = 0;
  int shown_percent_ = -1;
};

}  // namespace tandem
