#include "server/commands/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "fmt/format.h"

namespace tandem {

ProgressBar::ProgressBar(std::string unit)
    : unit_(std::move(unit)), on_terminal_(isatty(STDERR_FILENO) != 0) {}

void ProgressBar::Update(int64_t done, int64_t total) {
  if (!on_terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - shown_ < std::chrono::milliseconds(100) && done < total) return;
  shown_ = now;
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(done * kWidth / total);
  const double left = std::chrono::duration<double>(now - began_).count() *
                      static_cast<double>(total - done) /
                      static_cast<double>(std::max<int64_t>(done, 1));
  fmt::print(stderr, "\033[K[{:=<{}}{: <{}}] {} of {} {}, {:.0f} s left\r", "", filled, "",
             kWidth - filled, done, total, unit_, left);
  if (done == total) fmt::print(stderr, "\033[K");
  std::fflush(stderr);
}

}  // namespace tandem
