#include "tests/support/frozen_thread.h"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>

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

void Stop(pid_t thread) {
  ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
  waitpid(thread, nullptr, __WALL);
}

// Where it would go on; nothing on a machine whose registers this does not know.
std::optional<uint64_t> ProgramCounter([[maybe_unused]] const user_regs_struct& registers) {
#if defined(__x86_64__)
  return registers.rip;
#elif defined(__aarch64__)
  return registers.pc;
#else
  return std::nullopt;
#endif
}

// Whether a stopped thread is in the program's own code: in a library it may hold a lock that all
// other threads need (gRPC's, malloc's), and with it the whole process would hang.
bool IsInOwnCode(pid_t pid, pid_t thread) {
  user_regs_struct registers{};
  iovec place = {&registers, sizeof(registers)};
  if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &place) != 0) return false;
  const std::optional<uint64_t> at = ProgramCounter(registers);
  std::error_code error;
  const std::string program =
      std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), error);
  std::ifstream maps(fmt::format("/proc/{}/maps", pid));
  for (std::string line; at && std::getline(maps, line);) {
    uint64_t begin = 0;
    uint64_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    if (*at >= begin && *at < end) return line.ends_with(program);
  }
  return false;
}

}  // namespace

std::unique_ptr<FrozenThread> FrozenThread::Freeze(pid_t pid, const std::string& name) {
  constexpr int kTries = 200;  // one that sleeps is nowhere else
  if (!ProgramCounter({})) return nullptr;
  const pid_t thread = FindThread(pid, name);
  if (thread == 0 || ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return nullptr;
  Stop(thread);
  bool at_work = IsInOwnCode(pid, thread);
  for (int i = 0; i < kTries && !at_work; ++i) {
    ptrace(PTRACE_CONT, thread, nullptr, nullptr);
    Stop(thread);
    at_work = IsInOwnCode(pid, thread);
  }
  return std::unique_ptr<FrozenThread>(new FrozenThread(thread, at_work));
}

FrozenThread::~FrozenThread() { ptrace(PTRACE_DETACH, thread_, nullptr, nullptr); }

}  // namespace tandem
