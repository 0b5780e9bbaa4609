#include "server/commands/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// The beginning of the line by which a child reports that it cannot start.
constexpr std::string_view kFailure = "error: ";

// Runs in the child between fork and exec, so it may only make calls that are async-signal-safe.
[[noreturn]] void BecomeTandem(const char* binary, char* const* argv, int write_fd, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before prctl took effect
  setpgid(0, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  fcntl(write_fd, F_SETFD, 0);
  execv(binary, argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& arguments,
                                                 const std::string& binary) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Internal("pipe2: {}", std::strerror(errno));
  std::vector<std::string> words = {"tandem"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.push_back("--ready-fd");
  words.push_back(std::to_string(ends[1]));
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeTandem(binary.c_str(), argv.data(), ends[1], parent);
  const int error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return Internal("fork: {}", std::strerror(error));
  }
  return ChildProcess(pid, ends[0]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      ready_fd_(std::exchange(other.ready_fd_, -1)),
      failure_(std::move(other.failure_)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(ready_fd_, other.ready_fd_);
  std::swap(failure_, other.failure_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (ready_fd_ >= 0) close(ready_fd_);
}

std::string ChildProcess::TakeReadyLine() {
  std::string line;
  char buffer[256];
  while (ready_fd_ >= 0 && !line.ends_with('\n')) {
    const ssize_t count = read(ready_fd_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    line.append(buffer, static_cast<size_t>(count));
  }
  if (ready_fd_ >= 0) close(std::exchange(ready_fd_, -1));
  if (line.ends_with('\n')) line.pop_back();
  if (!line.starts_with(kFailure)) return line;
  failure_ = line.substr(kFailure.size());
  return "";
}

void ChildProcess::Signal(int signal) const { kill(pid_, signal); }

bool ReapAllChildren(std::chrono::milliseconds patience) {
  constexpr std::chrono::milliseconds kPollInterval(5);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (true) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG);
    if (ended < 0 && errno == ECHILD) return true;
    if (ended > 0) continue;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kPollInterval);
  }
}

void KeepFromChildren(int ready_fd) {
  if (ready_fd >= 0) fcntl(ready_fd, F_SETFD, FD_CLOEXEC);
}

void TellReady(int ready_fd, const std::string& address) {
  if (ready_fd < 0) return;
  const std::string line = address + "\n";
  // A parent that no longer reads is no reason to stop.
  [[maybe_unused]] const ssize_t written = write(ready_fd, line.data(), line.size());
  close(ready_fd);
}

void TellFailure(int ready_fd, const std::string& why) {
  TellReady(ready_fd, std::string(kFailure) + why);
}

}  // namespace tandem
