#include "server/commands/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "fmt/format.h"
#include "server/commands/child_process.h"

namespace tandem {
namespace {

constexpr Duration kFirstBackOff = std::chrono::milliseconds(100);
constexpr Duration kMaxBackOff = std::chrono::seconds(5);
// A child that lived this long was well: its next death starts the back-off anew.
constexpr Duration kHealthyLife = std::chrono::seconds(10);
// How long processes may take to exit after the time for draining is over.
constexpr Duration kExitGrace = std::chrono::seconds(3);

TimePoint Now() { return std::chrono::steady_clock::now(); }

// The router or one of the workers. Its process changes when it is started again.
struct Member {
  std::string name;
  std::vector<std::string> arguments;
  std::optional<ChildProcess> process;
  bool ready = false;      // whether the process that runs now is ready
  bool was_ready = false;  // whether any process of this member was ready so far
  TimePoint started;
  TimePoint restart_at = kNoDeadline;
  Duration back_off = kFirstBackOff;
};

// Blocks SIGINT, SIGTERM and SIGCHLD and returns a descriptor that can be polled for them.
int OpenSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);  // a reader of this process's output that goes away must not end it
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options)
      : options_(options), signals_(OpenSignals()) {
    KeepFromChildren(options.ready_fd);
    members_.push_back(Member{.name = "router", .arguments = options.router_arguments});
    router().arguments.push_back(fmt::format("--port={}", options.router_port));
    for (const SupervisedWorker& worker : options.workers) {
      members_.push_back(Member{.name = worker.name, .arguments = worker.arguments});
    }
  }
  ~Supervisor() { close(signals_); }

  absl::Status Run() {
    absl::Status status = StartMember(members_[0]);
    while (status.ok() && !stopping_) {
      Wait(NextRestart());
      status = React();
    }
    StopAll();
    return status;
  }

 private:
  Member& router() { return members_[0]; }

  absl::Status StartMember(Member& member) {
    ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(member.arguments));
    LogDebug("started name={} pid={}", member.name, process.pid());
    member.process = std::move(process);
    member.ready = false;
    member.started = Now();
    member.restart_at = kNoDeadline;
    return absl::OkStatus();
  }

  TimePoint NextRestart() const {
    TimePoint next = kNoDeadline;
    for (const Member& member : members_) next = std::min(next, member.restart_at);
    return next;
  }

  // Sleeps until a signal came, a child wrote to its pipe, or `deadline` has passed.
  void Wait(TimePoint deadline) {
    std::vector<pollfd> fds = {{.fd = signals_, .events = POLLIN, .revents = 0}};
    for (const Member& member : members_) {
      if (!stopping_ && member.process && member.process->ready_fd() >= 0) {
        fds.push_back({.fd = member.process->ready_fd(), .events = POLLIN, .revents = 0});
      }
    }
    int timeout_ms = -1;
    if (deadline != kNoDeadline) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Now()).count();
      timeout_ms = static_cast<int>(std::max<int64_t>(left, 0));
    }
    poll(fds.data(), fds.size(), timeout_ms);
  }

  absl::Status React() {
    TakeSignals();
    RETURN_IF_ERROR(TakeReadyLines());
    RETURN_IF_ERROR(Reap());
    for (Member& member : members_) {
      if (!stopping_ && member.restart_at <= Now()) RETURN_IF_ERROR(StartMember(member));
    }
    return absl::OkStatus();
  }

  void TakeSignals() {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
      if (info.ssi_signo != SIGCHLD) stopping_ = true;
    }
  }

  absl::Status TakeReadyLines() {
    for (Member& member : members_) {
      if (!member.process || member.process->ready_fd() < 0) continue;
      pollfd fd = {.fd = member.process->ready_fd(), .events = POLLIN, .revents = 0};
      if (poll(&fd, 1, 0) < 1) continue;
      const std::string line = member.process->TakeReadyLine();
      if (!line.empty()) RETURN_IF_ERROR(OnReady(member, line));
      // A child that wrote nothing has died, and Reap notes that.
    }
    return absl::OkStatus();
  }

  absl::Status OnReady(Member& member, const std::string& address) {
    const bool first = !member.was_ready;
    member.ready = member.was_ready = true;
    if (&member == &router() && first) {
      address_ = address;
      // A router that is started again must listen on the same port.
      const std::string port = address.substr(address.rfind(':') + 1);
      member.arguments.back() = "--port=" + port;
      for (Member& worker : members_) {
        if (&worker == &router()) continue;
        worker.arguments.push_back("--router=" + address);
        RETURN_IF_ERROR(StartMember(worker));
      }
    }
    const bool all =
        std::all_of(members_.begin(), members_.end(), [](const Member& m) { return m.was_ready; });
    if (all && !announced_) Announce();
    return absl::OkStatus();
  }

  void Announce() {
    announced_ = true;
    std::string names;
    for (const Member& member : members_) {
      if (&member != &router()) names += " " + member.name;
    }
    fmt::print("ready: {} at {} (workers:{})\n", options_.model, address_, names);
    fmt::print("  try: tandem generate \"It was a fine morning\" --server {}{}\n", address_,
               options_.client_flags);
    if (!options_.http_url.empty()) {
      fmt::print("  chat: tandem chat --url {}{}\n", options_.http_url, options_.client_flags);
      fmt::print("{}{}\n", options_.has_page ? "  or in a browser: " : "  HTTP: ",
                 options_.http_url + (options_.has_page ? "/" : "/health"));
    }
    std::fflush(stdout);
    TellReady(options_.ready_fd, address_);
  }

  // Takes note of children that ended.
  absl::Status Reap() {
    for (Member& member : members_) {
      int how = 0;
      if (!member.process || waitpid(member.process->pid(), &how, WNOHANG) <= 0) continue;
      member.process->TakeReadyLine();  // it may have written a reason since the last look
      const std::string why = member.process->failure();
      std::string what = WIFSIGNALED(how) ? fmt::format("killed by signal {}", WTERMSIG(how))
                                          : fmt::format("exited with status {}", WEXITSTATUS(how));
      if (!why.empty()) what = why;
      member.process.reset();
      if (stopping_) continue;
      if (!member.was_ready) {
        return FailedPrecondition("{} could not start: {}{}", member.name, what,
                                  why.empty() ? " (its log says why)" : "");
      }
      if (Now() - member.started > kHealthyLife) member.back_off = kFirstBackOff;
      LogWarn("{} {}; it starts again in {} ms", member.name, what,
              ToMilliseconds(member.back_off));
      member.restart_at = Now() + member.back_off;
      member.back_off = std::min(member.back_off * 2, kMaxBackOff);
    }
    return absl::OkStatus();
  }

  void StopAll() {
    stopping_ = true;
    const TimePoint deadline = Now() + options_.drain + kExitGrace;
    Stop({&router()}, deadline);
    std::vector<Member*> workers;
    for (Member& member : members_) {
      if (&member != &router()) workers.push_back(&member);
    }
    Stop(workers, std::max(deadline, Now() + kExitGrace));
  }

  // Sends SIGTERM to the members, and SIGKILL to those that still run at `deadline`.
  void Stop(const std::vector<Member*>& members, TimePoint deadline) {
    for (Member* member : members) {
      if (member->process) member->process->Signal(SIGTERM);
    }
    const auto any = [&members] {
      return std::any_of(members.begin(), members.end(),
                         [](const Member* member) { return member->process.has_value(); });
    };
    while (any() && Now() < deadline) {
      Wait(deadline);
      TakeSignals();
      Reap().IgnoreError();  // only says why a start failed
    }
    for (Member* member : members) {
      if (!member->process) continue;
      LogWarn("{} did not end in time: killed", member->name);
      member->process->Signal(SIGKILL);
      waitpid(member->process->pid(), nullptr, 0);
      member->process.reset();
    }
  }

  const SupervisorOptions& options_;
  const int signals_;
  std::vector<Member> members_;  // the router first
  std::string address_;
  bool announced_ = false;
  bool stopping_ = false;
};

}  // namespace

absl::Status RunSupervisor(const SupervisorOptions& options) { return Supervisor(options).Run(); }

}  // namespace tandem
