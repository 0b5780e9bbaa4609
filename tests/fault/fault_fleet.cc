#include "tests/fault/fault_fleet.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/unique_fd.h"
#include "fmt/format.h"
#include "tests/support/frozen_thread.h"
#include "tests/support/test_cluster.h"

namespace tandem {
namespace {

using std::chrono::seconds;

// A router notices a lost worker within this, a hanging one within the next.
constexpr seconds kLossNoticed(3);
constexpr seconds kFreezeNoticed(5);
constexpr seconds kFleetPatience(60);
// One that was asked to end lets its requests go elsewhere (--drain-seconds bounds it).
constexpr seconds kLeftWithin(15);
// While one is down the other serves.
constexpr int kWorkersPerRole = 2;
constexpr absl::Duration kLookAfterIt = absl::Milliseconds(200);

TimePoint Now() { return std::chrono::steady_clock::now(); }

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

// What is not at rest, for a person; empty when all is.
std::string Unrest(const v1::GetStatusResponse& status, size_t num_workers) {
  std::string unrest;
  if (status.requests_in_flight() != 0) {
    unrest += fmt::format(" in_flight={}", status.requests_in_flight());
  }
  if (static_cast<size_t>(status.workers_size()) != num_workers) {
    unrest += fmt::format(" workers={}", status.workers_size());
  }
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::HandoffUse& handoffs = worker.load().handoffs();
    uint64_t bytes_in_flight = 0;
    for (const v1::LinkStatus& link : worker.load().links())
      bytes_in_flight += link.bytes_in_flight();
    const bool rests = worker.alive() && worker.load().not_ready().empty() &&
                       BlocksInUse(worker) == 0 && worker.load().running() == 0 &&
                       worker.load().waiting() == 0 && handoffs.sending() == 0 &&
                       handoffs.reservations() == 0 && handoffs.waiting_reservations() == 0 &&
                       bytes_in_flight == 0;
    if (rests) continue;
    unrest += fmt::format(
        " [{} alive={} not_ready=\"{}\" blocks={} running={} waiting={} sending={} reservations={} "
        "waiting_reservations={} bytes_in_flight={}]",
        worker.name(), worker.alive(), worker.load().not_ready(), BlocksInUse(worker),
        worker.load().running(), worker.load().waiting(), handoffs.sending(),
        handoffs.reservations(), handoffs.waiting_reservations(), bytes_in_flight);
  }
  return unrest;
}

// Whether a child has ended, within `patience`. It is not reaped.
bool AwaitExit(pid_t child, Duration patience) {
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  pollfd ended = {process.get(), POLLIN, 0};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
  return process.valid() && poll(&ended, 1, static_cast<int>(left.count())) == 1;
}

}  // namespace

void LossTimes::Add(const LossTimes& some) {
  for (auto times : {&LossTimes::kill_ms, &LossTimes::stop_ms, &LossTimes::freeze_ms,
                     &LossTimes::idle_freeze_ms, &LossTimes::leave_ms}) {
    (this->*times).insert((this->*times).end(), (some.*times).begin(), (some.*times).end());
  }
}

FleetMember::FleetMember(FaultTarget role, std::string name, Context context)
    : role_(role), name_(std::move(name)), context_(context) {
  thread_ = std::thread([this] { Run(); });
}

FleetMember::~FleetMember() {
  {
    absl::MutexLock lock(&mutex_);
    ending_ = true;
  }
  thread_.join();
}

pid_t FleetMember::pid() const {
  absl::MutexLock lock(&mutex_);
  return process_ ? process_->pid() : -1;
}

LossTimes FleetMember::losses() const {
  absl::MutexLock lock(&mutex_);
  return losses_;
}

bool FleetMember::Disturb(FaultKind kind, Duration pause) {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kUp) return false;
  // A process that is stopped as a whole does not watch over its threads meanwhile.
  if (kind == FaultKind::kFreeze && stops_ > 0) return false;
  state_ = State::kDisturbed;
  kind_ = kind;
  began_ = Now();
  pause_ = pause;
  if (kind == FaultKind::kKill) process_->Signal(SIGKILL);
  if (kind == FaultKind::kLeave) process_->Signal(SIGTERM);
  if (kind == FaultKind::kPause || kind == FaultKind::kStop || kind == FaultKind::kReplace) {
    AddStop();
  }
  return true;
}

pid_t FleetMember::Hold() {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kUp) return 0;
  AddStop();
  return process_->pid();
}

void FleetMember::Unhold(pid_t held) {
  absl::MutexLock lock(&mutex_);
  // One that was started meanwhile is held by others, or stopped for good.
  if (process_->pid() == held) RemoveStop();
}

bool FleetMember::AwaitUp(Duration patience) const {
  const auto up = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return state_ == State::kUp; };
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&up), absl::FromChrono(patience));
}

void FleetMember::AddStop() {
  if (stops_++ == 0) process_->Signal(SIGSTOP);
}

void FleetMember::RemoveStop() {
  if (--stops_ == 0) process_->Signal(SIGCONT);
}

// Once it is whole again: before, it cannot be disturbed.
void FleetMember::SetUp() {
  absl::MutexLock lock(&mutex_);
  state_ = State::kUp;
}

void FleetMember::Run() {
  Start();
  SetUp();
  while (true) {
    const auto woken = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return state_ == State::kDisturbed || ending_;
    };
    bool disturbed;
    FaultKind kind;
    TimePoint began;
    Duration pause;
    {
      absl::MutexLock lock(&mutex_);
      disturbed = mutex_.AwaitWithTimeout(absl::Condition(&woken), kLookAfterIt);
      if (ending_) break;
      kind = kind_;
      began = began_;
      pause = pause_;
    }
    if (disturbed) {
      Recover(kind, began, pause);
      SetUp();
    } else if (EndedByItself()) {
      Start();
      SetUp();
    }
  }
  EndedByItself();
  kill(pid(), SIGKILL);
  waitpid(pid(), nullptr, 0);
}

// It has then failed a check, or crashed.
bool FleetMember::EndedByItself() {
  absl::MutexLock lock(&mutex_);
  if (state_ != State::kUp) return false;  // disturbed since
  int status = 0;
  const pid_t child = process_->pid();
  if (waitpid(child, &status, WNOHANG) != child) return false;
  context_.findings.Add(fmt::format("{} (pid {}) ended by itself, wait status {:#x}", name_, child,
                                    static_cast<unsigned>(status)));
  state_ = State::kStarting;
  return true;
}

void FleetMember::Start() {
  std::vector<std::string> arguments = {"worker",
                                        "--role",
                                        std::string(Name(role_)),
                                        "--name",
                                        name_,
                                        "--router",
                                        context_.router,
                                        "--threads=1",
                                        "--check-invariants",
                                        "--profile-at-start=off",
                                        "--model=" + context_.options.model,
                                        "--log-level=error"};
  if (role_ != FaultTarget::kUnified) {
    arguments.push_back(fmt::format("--kv-transport={}", TransportOf(context_.options.setup)));
  }
  // Elsewhere the rate of the link chooses, and ipc moves KV as it lies in the pool.
  if (role_ == FaultTarget::kPrefill && !IsSlow(context_.options.setup)) {
    arguments.push_back("--kv-codec=mask-rice");
  }
  if (context_.proxy != nullptr) {
    arguments.push_back("--advertise-data=tcp:" + context_.proxy->address());
  }
  const auto add = [&arguments](const std::vector<std::string>& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
  };
  add(context_.options.worker_flags);
  if (role_ == FaultTarget::kPrefill) add(context_.options.prefill_flags);
  if (role_ == FaultTarget::kDecode) add(context_.options.decode_flags);
  auto process = ChildProcess::Start(arguments, context_.options.binary);
  if (!process.ok()) return context_.findings.Add(process.status().ToString());
  const std::string ready = process->TakeReadyLine();
  const size_t data = ready.find("tcp:");
  if (context_.proxy != nullptr && data != std::string::npos) {
    context_.proxy->SetTarget(ready.substr(data + 4));
  }
  if (ready.empty()) context_.findings.Add(name_ + " did not start");
  {
    absl::MutexLock lock(&mutex_);
    process_ = *std::move(process);
    stops_ = 0;
  }
  AwaitAlive();
}

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
    RecoverFromFreeze(Now());
  } else if (kind == FaultKind::kReplace) {
    RecoverFromReplace(pause);
  }
}

void FleetMember::RecoverFromLeave(TimePoint began) {
  AwaitLeft(pid());
  AddLoss(&LossTimes::leave_ms, Now() - began);
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

Fleet::Fleet(FleetOptions options, FaultFindings& findings)
    : options_(std::move(options)), findings_(findings) {
  StartRouter();
  for (const FaultTarget role :
       {FaultTarget::kPrefill, FaultTarget::kDecode, FaultTarget::kUnified}) {
    for (int i = 0; i < kWorkersPerRole; ++i) AddMember(role);
  }
}

void Fleet::StartRouter() {
  std::vector<std::string> arguments = {"router", "--port=0", "--model=" + options_.model,
                                        "--canary-seconds=0", "--log-level=error"};
  arguments.insert(arguments.end(), options_.router_flags.begin(), options_.router_flags.end());
  auto process = ChildProcess::Start(arguments, options_.binary);
  if (!process.ok()) return findings_.Add(process.status().ToString());
  router_ = process->TakeReadyLine();
  router_process_ = *std::move(process);
  status_ = std::make_unique<StatusWatch>(router_);
}

void Fleet::AddMember(FaultTarget role) {
  if (status_ == nullptr) return;  // no router: found already
  const std::string name = fmt::format("{}-{}", Name(role), members(role).size());
  FrameProxy* proxy = nullptr;
  if (role == FaultTarget::kDecode && TransportOf(options_.setup) == "tcp") {
    auto opened = FrameProxy::Open();
    if (!opened.ok()) return findings_.Add(opened.status().ToString());
    proxy = proxies_.emplace(name, *std::move(opened)).first->second.get();
  }
  members_.push_back(std::make_unique<FleetMember>(role, name,
                                                   FleetMember::Context{.options = options_,
                                                                        .router = router_,
                                                                        .status = *status_,
                                                                        .findings = findings_,
                                                                        .proxy = proxy}));
}

Fleet::~Fleet() {
  members_.clear();
  status_.reset();
  if (!router_process_) return;
  router_process_->Signal(SIGKILL);
  waitpid(router_process_->pid(), nullptr, 0);
}

bool Fleet::AwaitUp(std::optional<FaultTarget> role) {
  const std::vector<FleetMember*> awaited = members(role);
  return !awaited.empty() && std::all_of(awaited.begin(), awaited.end(), [](const auto* member) {
    return member->AwaitUp(kFleetPatience);
  });
}

std::vector<FrameProxy*> Fleet::proxies() const {
  std::vector<FrameProxy*> all;
  for (const auto& [name, proxy] : proxies_) all.push_back(proxy.get());
  return all;
}

std::vector<FleetMember*> Fleet::members(std::optional<FaultTarget> role) const {
  std::vector<FleetMember*> some;
  for (const auto& member : members_) {
    if (!role || member->role() == *role) some.push_back(member.get());
  }
  return some;
}

bool Fleet::AwaitRest(Duration patience) {
  if (!AwaitUp()) {
    findings_.Add("a worker did not come back");
    return false;
  }
  const size_t num_workers = members_.size();
  const auto rests = [num_workers](const auto& status) {
    return Unrest(status, num_workers).empty();
  };
  if (status_->AwaitReported(rests, patience)) return true;
  findings_.Add("not at rest:" + Unrest(*status_->latest(), num_workers));
  return false;
}

LossTimes Fleet::losses() const {
  LossTimes all;
  for (const auto& member : members_) {
    all.Add(member->losses());
  }
  return all;
}

}  // namespace tandem
