#include "server/admin/watchdog.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "fmt/format.h"

namespace tandem {

std::string PulseJudge::Judge(std::span<const Pulse> pulses, TimePoint now) {
  const Duration passed =
      last_look_ == kNoDeadline ? Duration{} : std::min(now - last_look_, longest_gap_);
  last_look_ = now;
  std::string stuck;
  for (const Pulse& pulse : pulses) {
    Seen& seen = seen_[pulse.name];
    const bool moves = pulse.count != seen.count;
    seen.without_progress = moves ? Duration{} : seen.without_progress + passed;
    seen.count = pulse.count;
    if (seen.without_progress < patience_) continue;
    stuck += fmt::format("{}the {} thread made no progress for {:.0f} s", stuck.empty() ? "" : "; ",
                         pulse.name, std::chrono::duration<double>(patience_).count());
  }
  return stuck;
}

Watchdog::Watchdog(WatchdogOptions options, std::function<std::vector<Pulse>()> pulses,
                   std::function<void(const std::string&)> changed)
    : options_(options), pulses_(std::move(pulses)), changed_(std::move(changed)) {
  thread_ = std::thread([this] { Run(); });
}

Watchdog::~Watchdog() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    stopped_.Signal();
  }
  thread_.join();
}

std::string Watchdog::reason() const {
  absl::MutexLock lock(&mutex_);
  return reason_;
}

void Watchdog::Run() {
  NameThisThread("watchdog");
  PulseJudge judge(options_.patience, 2 * options_.interval);
  while (true) {
    {
      absl::MutexLock lock(&mutex_);
      const auto stop = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_; };
      if (stopped_.AwaitFor(mutex_, options_.interval, stop)) return;
    }
    Look(judge);
  }
}

void Watchdog::Look(PulseJudge& judge) {
  std::string reason = judge.Judge(pulses_(), std::chrono::steady_clock::now());
  {
    absl::MutexLock lock(&mutex_);
    if (reason == reason_) return;
    reason_ = reason;
  }
  if (reason.empty()) {
    LogInfo("watchdog: moves again, ready");
  } else {
    LogError("watchdog: not ready reason=\"{}\"", reason);
  }
  changed_(reason);
}

}  // namespace tandem
