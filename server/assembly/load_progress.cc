#include "server/assembly/load_progress.h"

#include <unistd.h>

#include <cstdio>

#include "base/log.h"
#include "fmt/format.h"

namespace tandem {

LoadProgressDisplay::LoadProgressDisplay(std::string what)
    : what_(std::move(what)),
      started_(std::chrono::steady_clock::now()),
      on_terminal_(isatty(STDERR_FILENO) != 0) {}

void LoadProgressDisplay::Update(uint64_t loaded_bytes, uint64_t total_bytes) {
  if (loaded_bytes == total_bytes) return Done(total_bytes);
  if (!on_terminal_) return;
  const int percent = static_cast<int>(loaded_bytes * 100 / total_bytes);
  if (percent != shown_percent_) Draw(percent, total_bytes);
  shown_percent_ = percent;
}

// Draws the bar and leaves the cursor at the beginning of its line, so that a log line written
// meanwhile replaces the bar.
void LoadProgressDisplay::Draw(int percent, uint64_t total_bytes) {
  constexpr int kWidth = 40;
  const int filled = percent * kWidth / 100;
  fmt::print(stderr, "\033[K{} [{:=<{}}{: <{}}] {:3}% of {:.1f} MB\r", what_, "", filled, "",
             kWidth - filled, percent, static_cast<double>(total_bytes) / 1e6);
  std::fflush(stderr);
}

void LoadProgressDisplay::Done(uint64_t total_bytes) {
  if (on_terminal_) fmt::print(stderr, "\033[K");
  const double ms = ToMilliseconds(std::chrono::steady_clock::now() - started_);
  const double megabytes = static_cast<double>(total_bytes) / 1e6;
  LogInfo("weights loaded model={} megabytes={:.1f} ms={:.0f} megabytes_per_s={:.0f}", what_,
          megabytes, ms, ms > 0 ? megabytes / ms * 1e3 : 0.0);
}

}  // namespace tandem
