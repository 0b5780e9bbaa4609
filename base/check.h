#pragma once

#include <string_view>

namespace tandem::internal {

// Logs the failed condition with its place and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace tandem::internal

// For own invariants only: a failure is a bug of ours, so the process ends before it can do harm.
// Input, peers, files and devices give a Status instead.
#define TANDEM_CHECK(condition, message)                                              \
  do {                                                                                \
    if (!(condition)) [[unlikely]]                                                    \
      ::tandem::internal::CheckFailed(__FILE__, __LINE__, #condition, (message));     \
  } while (false)
