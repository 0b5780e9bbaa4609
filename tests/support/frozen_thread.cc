#include "tests/support/frozen_thread.h"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "fmt/format.h"

namespace tandem {
namespace {

// 0 when there is none.
pid_t FindThread(pid_t pid, const std::string& name) {
  std::error_code error;
  std::filesystem::directory_iterator task(fmt::format("/proc/{}/task", pid), error);
  for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    std::ifstream file(task->path() / "comm");
    std::string comm;
    if (std::getline(file, comm) && comm == name) return std::stoi(task->path().filename());
  }
  return 0;
}

}  // namespace

std::unique_ptr<FrozenThread> FrozenThread::Freeze(pid_t pid, const std::string& name) {
  const pid_t thread = FindThread(pid, name);
  if (thread == 0 || ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return nullptr;
  ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
  waitpid(thread, nullptr, __WALL);
  return std::unique_ptr<FrozenThread>(new FrozenThread(thread));
}

FrozenThread::~FrozenThread() { ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); }

}  // namespace tandem
