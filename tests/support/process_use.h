#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "fmt/format.h"

namespace tandem {

// Resident memory of a process in KiB; 0 when it is gone.
inline int64_t ResidentKib(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  int64_t pages = 0;
  file >> pages >> pages;
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

// The most resident memory that a process has had since it began, or since ForgetPeak, in KiB.
inline int64_t PeakResidentKib(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string word; file >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && file >> kib) return kib;
  }
  return 0;
}

// From now on the peak is what the process has now.
inline void ForgetPeak(pid_t pid) { std::ofstream(fmt::format("/proc/{}/clear_refs", pid)) << 5; }

// Open descriptors of a process; 0 when it is gone.
inline int64_t OpenDescriptors(pid_t pid) {
  std::error_code error;
  const std::filesystem::directory_iterator entries(fmt::format("/proc/{}/fd", pid), error);
  return error ? 0 : std::distance(begin(entries), end(entries));
}

}  // namespace tandem
