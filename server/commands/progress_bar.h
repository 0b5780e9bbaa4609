#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tandem {

// A bar on stderr with the time that is left, where stderr is a terminal; nothing elsewhere.
class ProgressBar {
 public:
  // `unit`: what is counted, in the plural.
  explicit ProgressBar(std::string unit);

  // The bar is cleared once all is done.
  void Update(int64_t done, int64_t total);

 private:
  const std::string unit_;
  const bool on_terminal_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace tandem
