#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

namespace tandem {

// One thread of another process, stopped as by a debugger while this lives; the others run on. Must
// end on the thread that made it.
class FrozenThread {
 public:
  // The thread of `pid`, a child of this process, with this name, which should be busy: it is
  // stopped in the program's own code, not in a library, where it may hold what all others need.
  // Null when there is none, when the system lets nobody trace, or on a machine that is neither
  // x86-64 nor aarch64: nobody can say there where the thread is.
  static std::unique_ptr<FrozenThread> Freeze(pid_t pid, const std::string& name);
  ~FrozenThread();
  // Whether it was computing when it was stopped; else it was asleep, or deep in a library.
  bool at_work() const { return at_work_; }
  FrozenThread(const FrozenThread&) = delete;
  FrozenThread& operator=(const FrozenThread&) = delete;

 private:
  FrozenThread(pid_t thread, bool at_work) : thread_(thread), at_work_(at_work) {}

  const pid_t thread_;
  const bool at_work_;
};

}  // namespace tandem
