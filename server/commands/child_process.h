#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// The running binary, even if its file has been replaced or deleted.
inline constexpr char kThisBinary[] = "/proc/self/exe";

// A child process that runs `tandem`. It has a process group of its own, so that a Ctrl-C at the
// terminal reaches only its parent, which decides the order in which processes end. The kernel
// kills it when the thread that started it dies. Its flag --ready-fd names the write end of a pipe,
// whose read end is ready_fd().
class ChildProcess {
 public:
  // arguments: those after `tandem`. INTERNAL when the system cannot start a process.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& arguments,
                                            const std::string& binary = kThisBinary);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  // Closes the pipe; leaves the process alone.
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // Becomes readable once the child is ready, or has died before that.
  int ready_fd() const { return ready_fd_; }
  // The line that the child wrote when it was ready, which is its address; empty when the child
  // will never be ready. Blocks until either is known. Closes the pipe.
  std::string TakeReadyLine();
  // After TakeReadyLine: why the child will never be ready, as "CODE: message"; empty when it gave
  // no reason.
  const std::string& failure() const { return failure_; }

  void Signal(int signal) const;

 private:
  ChildProcess(pid_t pid, int ready_fd) : pid_(pid), ready_fd_(ready_fd) {}

  pid_t pid_ = -1;
  int ready_fd_ = -1;
  std::string failure_;
};

// For a process that adopts its orphans (PR_SET_CHILD_SUBREAPER): reaps children until none is
// left. False when one still lives after `patience`.
bool ReapAllChildren(std::chrono::milliseconds patience);

// Called in a child, for the write end of its parent's pipe: keeps the descriptor from children of
// its own, which would hold the pipe open after this process has died. Does nothing for -1.
void KeepFromChildren(int ready_fd);
// Writes `address` to the descriptor that --ready-fd named, and closes it. Does nothing for -1,
// where the flag was not given.
void TellReady(int ready_fd, const std::string& address);
// Writes the reason for which this process ends instead of becoming ready, "CODE: message" on one
// line, to the descriptor of --ready-fd, and closes it. Does nothing for -1.
void TellFailure(int ready_fd, const std::string& why);

}  // namespace tandem
