#include "tests/fault/fleet_member.h"

#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"

namespace tandem {
namespace {

// Between two looks at whether the process has ended by itself.
constexpr absl::Duration kLookAfterIt = absl::Milliseconds(200);

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
  began_ = std::chrono::steady_clock::now();
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

}  // namespace tandem
