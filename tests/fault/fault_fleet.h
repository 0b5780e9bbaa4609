#pragma once

#include <atomic>
#include <map>
#include <memory>
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

inline constexpr std::chrono::milliseconds kShortPause(20);
inline constexpr std::chrono::milliseconds kLongPause(160);
inline constexpr std::chrono::milliseconds kLongestPause(300);

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

// A router and two workers of each role as processes of their own. On tcp, KV
// goes through a proxy before each decode worker.
class Fleet {
 public:
  Fleet(FleetOptions options, FaultFindings& findings);
  ~Fleet();

  // Until all, or those of one role, are up and used by the router; whether they are.
  bool AwaitUp(std::optional<FaultTarget> role = std::nullopt);
  const std::string& router() const { return router_; }
  const StatusWatch& status() const { return *status_; }
  std::vector<FrameProxy*> proxies() const;
  // Those of one role, or all.
  std::vector<FleetMember*> members(std::optional<FaultTarget> role = std::nullopt) const;

  // No request, reservation, hand-off or block in use anywhere and every worker well. What is not
  // so is found.
  bool AwaitRest(Duration patience);
  LossTimes losses() const;

 private:
  void StartRouter();
  void AddMember(FaultTarget role);

  const FleetOptions options_;
  FaultFindings& findings_;
  std::optional<ChildProcess> router_process_;
  std::string router_;
  std::unique_ptr<StatusWatch> status_;
  std::map<std::string, std::unique_ptr<FrameProxy>> proxies_;
  std::vector<std::unique_ptr<FleetMember>> members_;
};

}  // namespace tandem
