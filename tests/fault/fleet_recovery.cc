// How a worker of the fleet comes back after a fault, and what the router must have noticed of it.

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "fmt/format.h"
#include "tests/fault/fleet_member.h"
#include "tests/support/frozen_thread.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using std::chrono::seconds;

// A router notices a lost worker within this, a hanging one within the next.
constexpr seconds kLossNoticed(3);
constexpr seconds kFreezeNoticed(5);
// One that was asked to end lets its requests go elsewhere (--drain-seconds bounds it).
constexpr seconds kLeftWithin(15);

// Whether the worker with this name and pid gets requests as others do.
bool IsWell(const v1::GetStatusResponse& status, const std::string& name, pid_t pid) {
  const v1::WorkerStatus* worker = FindWorker(status, name);
  return worker != nullptr && worker->pid() == pid && worker->alive() &&
         worker->load().not_ready().empty() && !worker->load().starting();
}

// How the router sees the worker with this name, for a person.
std::string Seen(const v1::GetStatusResponse& status, const std::string& name) {
  const v1::WorkerStatus* worker = FindWorker(status, name);
  if (worker == nullptr) return "not known";
  return fmt::format(
      "pid={} alive={} not_ready=\"{}\" heartbeat_age_ms={:.0f} running={} waiting={}",
      worker->pid(), worker->alive(), worker->load().not_ready(), worker->heartbeat_age_ms(),
      worker->load().running(), worker->load().waiting());
}

// Whether a child has ended, within `patience`. It is not reaped.
bool AwaitExit(pid_t child, Duration patience) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  pollfd ended = {process.get(), POLLIN, 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
  return process.valid() && poll(&ended, 1, static_cast<int>(left.count())) == 1;
}

}  // namespace

void FleetMember::AwaitAlive() {
  const pid_t child = pid();
  const TimePoint came = context_.status.Await(
      [&](const auto& status) { return IsWell(status, name_, child); }, kFleetPatience);
  if (came == kNoDeadline) {
    context_.findings.Add(fmt::format("{} (pid {}) lives and is not used again: {}", name_, child,
                                      Seen(*context_.status.latest(), name_)));
  }
}

void FleetMember::AwaitNoticed(TimePoint began, Duration bound,
                               std::vector<double> LossTimes::*times) {
  const pid_t child = pid();
  const TimePoint noticed = context_.status.Await(
      [&](const auto& status) { return !IsWell(status, name_, child); }, kFleetPatience);
  const Duration took = noticed - began;
  if (noticed == kNoDeadline) {
    return context_.findings.Add(fmt::format("the loss of {} was never noticed", name_));
  }
  if (took > bound) {
    context_.findings.Add(fmt::format("the loss of {} (pid {}) was noticed after {:.0f} ms: {}",
                                      name_, child, ToMilliseconds(took),
                                      Seen(*context_.status.latest(), name_)));
  }
  AddLoss(times, took);
}

void FleetMember::AddLoss(std::vector<double> LossTimes::*times, Duration took) {
  absl::MutexLock lock(&mutex_);
  (losses_.*times).push_back(ToMilliseconds(took));
}

void FleetMember::Recover(FaultKind kind, TimePoint began, Duration pause) {
  if (kind == FaultKind::kKill) {
    waitpid(pid(), nullptr, 0);
    // Half of them come back before they are missed.
    if (pause >= kLongPause) AwaitNoticed(began, kLossNoticed, &LossTimes::kill_ms);
    Start();
  } else if (kind == FaultKind::kPause) {
    std::this_thread::sleep_for(pause);  // the fault itself
    absl::MutexLock lock(&mutex_);
    RemoveStop();
  } else if (kind == FaultKind::kStop) {
    RecoverFromStop(began);
  } else if (kind == FaultKind::kLeave) {
    RecoverFromLeave(began);
  } else if (kind == FaultKind::kFreeze) {
    RecoverFromFreeze(std::chrono::steady_clock::now());
  } else if (kind == FaultKind::kReplace) {
    RecoverFromReplace(pause);
  }
}

void FleetMember::RecoverFromLeave(TimePoint began) {
  AwaitLeft(pid());
  AddLoss(&LossTimes::leave_ms, std::chrono::steady_clock::now() - began);
  Start();
}

// The first is frozen while the other comes into its place. Half of them speak again: nobody may
// listen.
void FleetMember::RecoverFromReplace(Duration pause) {
  const pid_t first = pid();
  Start();
  if (pause >= kLongPause) {
    kill(first, SIGCONT);
    std::this_thread::sleep_for(pause);  // the fault itself
    kill(first, SIGTERM);
    AwaitLeft(first);
  } else {
    kill(first, SIGKILL);
    waitpid(first, nullptr, 0);
  }
  const auto status = context_.status.latest();
  const v1::WorkerStatus* worker = FindWorker(*status, name_);
  if (worker == nullptr || worker->pid() != pid()) {
    context_.findings.Add(fmt::format("{} (pid {}) lost its name to the one before (pid {}): {}",
                                      name_, pid(), first, Seen(*status, name_)));
  }
}

// One that was told to leave and does not end is killed: what it was doing is found.
void FleetMember::AwaitLeft(pid_t child) {
  if (!AwaitExit(child, kLeftWithin)) {
    context_.findings.Add(fmt::format("{} (pid {}) did not end within {} s of SIGTERM: {}", name_,
                                      child, kLeftWithin.count(),
                                      Seen(*context_.status.latest(), name_)));
    kill(child, SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    context_.findings.Add(fmt::format("{} (pid {}) ended after SIGTERM with wait status {:#x}",
                                      name_, child, static_cast<unsigned>(status)));
  }
}

void FleetMember::RecoverFromStop(TimePoint began) {
  AwaitNoticed(began, kLossNoticed, &LossTimes::stop_ms);
  {
    absl::MutexLock lock(&mutex_);
    RemoveStop();
  }
  AwaitAlive();
}

void FleetMember::RecoverFromFreeze(TimePoint began) {
  auto frozen = FrozenThread::Freeze(pid(), "engine");
  if (frozen == nullptr) {
    return context_.findings.Add(fmt::format(
        "cannot stop the engine thread of {}: may this user trace, on x86-64 or aarch64?", name_));
  }
  AwaitNoticed(began, kFreezeNoticed,
               frozen->at_work() ? &LossTimes::freeze_ms : &LossTimes::idle_freeze_ms);
  frozen.reset();
  AwaitAlive();
}

}  // namespace tandem
