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

// The progress of a thread that others depend on, at one moment. The thread turns all the time,
// whether or not there is work: seldom while there is none.
struct Pulse {
  std::string name;    // such as "engine"
  uint64_t count = 0;  // increases whenever the thread makes progress
  // The limit of a pulse that counts results of a thread, such as steps, and may stand still for
  // longer than the thread itself. Nothing for a thread.
  std::optional<Duration> patience = std::nullopt;
};

// What the watchdog knows of one pulse.
struct PulseState {
  std::string name;
  Duration without_progress{};
  std::string problem;    // for a person; empty while the pulse makes progress
  bool is_thread = true;  // false: it counts results of a thread (Pulse::patience)
};

// Counts the iterations of a transport's thread.
struct TurnCounter {
  explicit TurnCounter(std::string name) : name(std::move(name)) {}

  const std::string name;
  std::atomic<uint64_t> turns = 0;
};

// Detects threads that hang: those whose count has not increased for as long as `patience`. Of the
// time between two looks no more than `longest_gap` counts, because a process that was stopped as a
// whole did not look either.
class PulseJudge {
 public:
  PulseJudge(Duration patience, Duration longest_gap)
      : patience_(patience), longest_gap_(longest_gap) {}

  // Returns the state of each pulse, in the order of `pulses`.
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
  // How long a pulse may stand still. A hang is reported after at most patience + 2 x interval: up
  // to one interval until the first look that sees nothing new, and up to one because patience ends
  // between looks. Routers must know within 5 s.
  Duration patience = std::chrono::seconds(4);
  Duration interval = std::chrono::milliseconds(250);
  // Called after each look, on the watchdog's thread and without a lock, to check conditions that
  // have no pulse.
  std::function<void()> looked = {};
};

// Looks at pulses regularly, on a thread of its own that depends on none of the threads it watches.
class Watchdog {
 public:
  // `pulses` returns all pulses and must not block. `changed` is called on the watchdog's thread,
  // without a lock, with the new reason() each time that it becomes empty or no longer is.
  Watchdog(WatchdogOptions options, std::function<std::vector<Pulse>()> pulses,
           std::function<void(const std::string& reason)> changed);
  // Ends the thread, and waits for a call of `changed` that is in progress.
  ~Watchdog();

  // Why this process makes no progress; empty while it does. Thread-safe.
  std::string reason() const;
  // The state of each pulse at the latest look; empty before the first. Thread-safe.
  std::vector<PulseState> states() const;
  // The time since the latest look, or since the start before the first. The watchdog itself hangs
  // when this exceeds `patience`. Thread-safe.
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
