#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// The binary that runs now, whatever became of its file.
inline constexpr char kThisBinary[] = "/proc/self/exe";

// A `tandem` process, in a process group of its own (a Ctrl-C at the terminal
// reaches only its parent, which decides the order in which things end), killed by the kernel if
// the thread that started it dies. Its --ready-fd is a pipe to ready_fd().
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
  // What the child wrote when it was ready, its address; empty when it never will be. Blocks until
  // either is known. Closes the pipe.
  std::string TakeReadyLine();
  // Afterwards: why it never will be, as "CODE: message"; empty when it did not say.
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

// The other end, in the child. The descriptor must not go on to children of its own, or its parent
// would not see that it died.
void KeepFromChildren(int ready_fd);
// Writes `address` to the descriptor that --ready-fd named and closes it. Both do nothing when it
// named none (-1).
void TellReady(int ready_fd, const std::string& address);
// The same with the reason for which this process ends instead, "CODE: message" on one line.
void TellFailure(int ready_fd, const std::string& why);

}  // namespace tandem
