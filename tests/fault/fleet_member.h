#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "server/commands/child_process.h"
#include "tests/fault/fault_schedule.h"
#include "tests/fault/findings.h"
#include "tests/fault/status_watch.h"
#include "tests/support/frame_proxy.h"

namespace tandem {

// Of what a fleet's processes are started, and with which flags.
struct FleetOptions {
  FaultSetup setup = FaultSetup::kTcp;
  std::string binary;
  std::string model;
  std::vector<std::string> router_flags;
  std::vector<std::string> worker_flags;
  std::vector<std::string> prefill_flags;  // of prefill workers, after worker_flags
  std::vector<std::string> decode_flags;   // of decode workers, likewise
};

// Worker processes are lost and seen to be lost: how long that took, by kind.
struct LossTimes {
  std::vector<double> kill_ms;
  std::vector<double> stop_ms;
  std::vector<double> freeze_ms;       // at work
  std::vector<double> idle_freeze_ms;  // asleep, with nothing to do
  std::vector<double> leave_ms;        // from SIGTERM to the end of the process

  void Add(const LossTimes& some);
};

// How long the pause of a fault lasts.
inline constexpr std::chrono::milliseconds kShortPause(20);
inline constexpr std::chrono::milliseconds kLongPause(160);
inline constexpr std::chrono::milliseconds kLongestPause(300);
// So long is waited for a worker to be lost, or to be back: then it is found that it was not.
inline constexpr std::chrono::seconds kFleetPatience(60);

// A worker of the fleet: a process that a thread of its own starts, and starts again.
class FleetMember {
 public:
  struct Context {
    const FleetOptions& options;
    const std::string& router;
    const StatusWatch& status;
    FaultFindings& findings;
    // What the worker advertises for KV to reach it, and who is told where it does; may be null.
    FrameProxy* proxy = nullptr;
  };
  FleetMember(FaultTarget role, std::string name, Context context);
  // Kills it.
  ~FleetMember();

  const std::string& name() const { return name_; }
  FaultTarget role() const { return role_; }
  pid_t pid() const;

  // Does it at once, unless one is still being recovered from; whether it did. kFreeze neither
  // while the worker is held. kPause lasts for `pause`; after kKill of at least kLongPause it is
  // started again only once it was missed; after kReplace of at least kLongPause it lives on for so
  // long beside the other. Never blocks.
  bool Disturb(FaultKind kind, Duration pause);
  // SIGSTOP from the first Hold to the last Unhold, of the process that Hold returns: 0, and
  // without effect, while the worker is down.
  pid_t Hold();
  void Unhold(pid_t held);
  // Until no disturbance is in progress; false after `patience`.
  bool AwaitUp(Duration patience) const;

  LossTimes losses() const;

 private:
  enum class State : uint8_t { kStarting, kUp, kDisturbed, kEnding };

  void Run();
  void Start();
  void SetUp();
  void Recover(FaultKind kind, TimePoint began, Duration pause);
  void RecoverFromStop(TimePoint began);
  void RecoverFromFreeze(TimePoint began);
  void RecoverFromLeave(TimePoint began);
  void RecoverFromReplace(Duration pause);
  void AwaitLeft(pid_t child);
  void AddLoss(std::vector<double> LossTimes::*times, Duration took);
  // Until the router has given the worker up; counts how long that took.
  void AwaitNoticed(TimePoint began, Duration bound, std::vector<double> LossTimes::*times);
  void AwaitAlive();
  void AddStop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveStop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool EndedByItself();

  const FaultTarget role_;
  const std::string name_;
  const Context context_;

  mutable absl::Mutex mutex_;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kStarting;
  std::optional<ChildProcess> process_ ABSL_GUARDED_BY(mutex_);
  int stops_ ABSL_GUARDED_BY(mutex_) = 0;
  FaultKind kind_ ABSL_GUARDED_BY(mutex_) = FaultKind::kKill;
  TimePoint began_ ABSL_GUARDED_BY(mutex_);
  Duration pause_ ABSL_GUARDED_BY(mutex_){};
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  LossTimes losses_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace tandem
