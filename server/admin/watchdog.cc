#include "server/admin/watchdog.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "fmt/format.h"

namespace tandem {

std::vector<PulseState> PulseJudge::Judge(std::span<const Pulse> pulses, TimePoint now) {
  const Duration passed =
      last_look_ == kNoDeadline ? Duration{} : std::min(now - last_look_, longest_gap_);
  last_look_ = now;
  std::vector<PulseState> states;
  for (const Pulse& pulse : pulses) {
    Seen& seen = seen_[pulse.name];
    const bool moves = pulse.count != seen.count;
    seen.without_progress = moves ? Duration{} : seen.without_progress + passed;
    seen.count = pulse.count;
    PulseState& state = states.emplace_back(PulseState{.name = pulse.name,
                                                       .without_progress = seen.without_progress,
                                                       .problem = "",
                                                       .is_thread = !pulse.patience});
    const Duration patience = pulse.patience.value_or(patience_);
    if (seen.without_progress < patience) continue;
    const double seconds = std::chrono::duration<double>(patience).count();
    state.problem =
        pulse.patience
            ? fmt::format("no {} has ended for {:.0f} s", pulse.name, seconds)
            : fmt::format("the {} thread made no progress for {:.0f} s", pulse.name, seconds);
  }
  return states;
}

Watchdog::Watchdog(WatchdogOptions options, std::function<std::vector<Pulse>()> pulses,
                   std::function<void(const std::string&)> changed)
    : options_(std::move(options)), pulses_(std::move(pulses)), changed_(std::move(changed)) {
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

std::vector<PulseState> Watchdog::states() const {
  absl::MutexLock lock(&mutex_);
  return states_;
}

Duration Watchdog::since_look() const {
  absl::MutexLock lock(&mutex_);
  return std::chrono::steady_clock::now() - looked_at_;
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
  const TimePoint now = std::chrono::steady_clock::now();
  std::vector<PulseState> states = judge.Judge(pulses_(), now);
  std::string reason;
  for (const PulseState& state : states) {
    if (state.problem.empty()) continue;
    reason += (reason.empty() ? "" : "; ") + state.problem;
  }
  bool is_new = false;
  {
    absl::MutexLock lock(&mutex_);
    looked_at_ = now;
    states_ = std::move(states);
    is_new = reason != reason_;
    reason_ = reason;
  }
  if (is_new) Report(reason);
  if (options_.looked) options_.looked();
}

void Watchdog::Report(const std::string& reason) {
  if (reason.empty()) {
    LogInfo("watchdog: moves again, ready");
  } else {
    LogError("watchdog: not ready reason=\"{}\"", reason);
  }
  changed_(reason);
}

}  // namespace tandem
