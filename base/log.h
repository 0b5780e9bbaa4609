#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "fmt/core.h"

namespace tandem {

// Sets up the process-wide logger: stderr, one line per event, `key=value`, UTC time. A reader of
// stderr that stands still or has gone costs lines, never the service (base/line_writer.h).
// level: trace|debug|info|warn|error|off. name: shown on each line ("router", "decode-1").
// INVALID_ARGUMENT for an unknown level.
absl::Status SetUpLogging(std::string_view level, std::string_view name);

enum class LogLevel { kDebug, kInfo, kWarn, kError, kCritical };

bool IsLogged(LogLevel level);
void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args);

// Writes everything out; nothing is logged from then on.
void CloseLog();

// Only log.cc includes spdlog: its templates would compile all of fmt into every file that logs.
template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (IsLogged(level)) WriteLog(level, format, fmt::make_format_args(args...));
}

template <typename... Args>
void LogDebug(fmt::format_string<Args...> format, Args&&... args) {
  Log<Args...>(LogLevel::kDebug, format, std::forward<Args>(args)...);
}

template <typename... Args>
void LogInfo(fmt::format_string<Args...> format, Args&&... args) {
  Log<Args...>(LogLevel::kInfo, format, std::forward<Args>(args)...);
}

template <typename... Args>
void LogWarn(fmt::format_string<Args...> format, Args&&... args) {
  Log<Args...>(LogLevel::kWarn, format, std::forward<Args>(args)...);
}

template <typename... Args>
void LogError(fmt::format_string<Args...> format, Args&&... args) {
  Log<Args...>(LogLevel::kError, format, std::forward<Args>(args)...);
}

// Writes a line to stderr that is not a log line. Like a log line, it is dropped when nobody reads
// stderr. `line` ends with a line feed.
void WriteToStderr(std::string_view line);

// The number of lines that could not be written to stderr since the start.
uint64_t LogLinesDropped();

}  // namespace tandem
