#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"

namespace tandem {

// A thread that others depend on, at one moment. It turns all the time, whether or not there
// is work: seldom while there is none.
struct Pulse {
  std::string name;    // "engine"
  uint64_t count = 0;  // rises with everything that it does
  // Set for a pulse that counts what a thread achieves, such as steps, and so may stand still for longer
  // than a thread that moves.
  std::optional<Duration> patience = std::nullopt;
};

// What is known of one pulse.
struct PulseState {
  std::string name;
  Duration without_progress{};
  std::string problem;    // for a person; empty while it is well
  bool is_thread = true;  // false: what a thread achieves (Pulse::patience)
};

// Counts the turns of a transport's thread.
struct TurnCounter {
  explicit TurnCounter(std::string name) : name(std::move(name)) {}

  const std::string name;
  std::atomic<uint64_t> turns = 0;
};

// Tells threads that hang: those whose count has not risen for as long as `patience`. Of the time
// between two looks no more than `longest_gap` counts, since a process that was stopped as a whole
// did not look either.
class PulseJudge {
 public:
  PulseJudge(Duration patience, Duration longest_gap)
      : patience_(patience), longest_gap_(longest_gap) {}

  // The state of each pulse, in their order.
  std::vector<PulseState> Judge(std::span<const Pulse> pulses, TimePoint now);

 private:
  struct Seen {
    uint64_t count = 0;
    Duration without_progress{};
  };

  const Duration patience_;
  const Duration longest_gap_;
  TimePoint last_look_ = kNoDeadline;
  std::map<std::string, Seen> seen_;
};

struct WatchdogOptions {
  // A hang is reported after at most patience + 2 x interval: up to one until the first look that sees
  // nothing new, and up to one since patience ends between looks. Routers shall know within 5 s.
  Duration patience = std::chrono::seconds(4);
  Duration interval = std::chrono::milliseconds(250);
  // Called after each look, on the watchdog's thread and under no lock, for what changes without a pulse.
  std::function<void()> looked = {};
};

// Looks at pulses on a thread of its own, which needs none of the threads that it watches.
class Watchdog {
 public:
  // `pulses` must not block. `changed` is called on the watchdog's thread, under no lock, with the
  // new reason() each time that it becomes empty or no longer is.
  Watchdog(WatchdogOptions options, std::function<std::vector<Pulse>()> pulses,
           std::function<void(const std::string& reason)> changed);
  // Ends the thread, and waits for a call of `changed` that is in progress.
  ~Watchdog();

  // Why this process makes no progress; empty while it does. Thread-safe.
  std::string reason() const;
  // What the latest look saw of each pulse; empty before the first. Thread-safe.
  std::vector<PulseState> states() const;
  // The time since that look, or since the start. The watchdog itself hangs when this exceeds `patience`.
  // Thread-safe.
  Duration since_look() const;
  const WatchdogOptions& options() const { return options_; }

 private:
  void Run();
  void Look(PulseJudge& judge);
  void Report(const std::string& reason);

  const WatchdogOptions options_;
  const std::function<std::vector<Pulse>()> pulses_;
  const std::function<void(const std::string&)> changed_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar stopped_;
  std::string reason_ ABSL_GUARDED_BY(mutex_);
  std::vector<PulseState> states_ ABSL_GUARDED_BY(mutex_);
  TimePoint looked_at_ ABSL_GUARDED_BY(mutex_) = std::chrono::steady_clock::now();
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem
