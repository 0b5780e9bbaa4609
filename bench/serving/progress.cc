#include "bench/serving/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/log.h"
#include "fmt/format.h"

namespace tandem::loadgen {

ProgressDisplay::ProgressDisplay(std::string what, int64_t total, const RunCounts& counts)
    : what_(std::move(what)),
      total_(total),
      counts_(counts),
      started_(std::chrono::steady_clock::now()) {
  if (isatty(STDERR_FILENO) != 0) thread_ = std::thread([this] { Show(); });
}

ProgressDisplay::~ProgressDisplay() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }
  changed_.Signal();
  thread_.join();
  WriteToStderr("\033[K");
}

void ProgressDisplay::Show() {
  constexpr std::chrono::milliseconds kInterval(200);
  absl::MutexLock lock(&mutex_);
  while (!changed_.AwaitFor(mutex_, kInterval,
                            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return done_; })) {
    Draw();
  }
}

// Leaves the cursor at the beginning of the line, so that whatever is printed next takes the line.
void ProgressDisplay::Draw() const {
  constexpr int kWidth = 30;
  const int64_t ended = counts_.ended;
  const auto filled = static_cast<int>(ended * kWidth / total_);
  const double seconds = ToMilliseconds(std::chrono::steady_clock::now() - started_) / 1e3;
  WriteToStderr(fmt::format(
      "\033[K{} [{:=<{}}{: <{}}] {}/{} ended, {} under way, {} failed, {:.0f} tok/s, {:.0f} s\r",
      what_, "", filled, "", kWidth - filled, ended, total_, counts_.sent - ended,
      counts_.failed.load(), static_cast<double>(counts_.tokens) / seconds, seconds));
}

}  // namespace tandem::loadgen
