#pragma once

#include <string_view>

namespace tandem::internal {

// Logs the failed condition with file and line, then aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace tandem::internal

// For our own invariants only: a failure is a bug, so the process ends before it can do harm.
// Errors of input, peers, files and devices are returned as a Status instead.
#define TANDEM_CHECK(condition, message)                                          \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::tandem::internal::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
