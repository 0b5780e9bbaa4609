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
  // Null when there is none, or when the system lets nobody trace.
  static std::unique_ptr<FrozenThread> Freeze(pid_t pid, const std::string& name);
  ~FrozenThread();
  FrozenThread(const FrozenThread&) = delete;
  FrozenThread& operator=(const FrozenThread&) = delete;

 private:
  explicit FrozenThread(pid_t thread) : thread_(thread) {}

  const pid_t thread_;
};

}  // namespace tandem
