#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "fmt/core.h"

namespace tandem {

// How lines of the log look: text for people, or one JSON object each (base/log_record.h).
enum class LogFormat : uint8_t { kText, kJson };

struct LogSetup {
  std::string level = "info";   // as for SetUpLogging of base/log.h
  std::string format = "text";  // or "json"
};

// As SetUpLogging of base/log.h, in either format. INVALID_ARGUMENT for an unknown level or format.
absl::Status SetUpLogging(const LogSetup& setup, std::string_view name);

// A line of level info that is written whatever the level of the log is.
void WriteLogAlways(fmt::string_view format, fmt::format_args args);
template <typename... Args>
void LogAlways(fmt::format_string<Args...> format, Args&&... args) {
  WriteLogAlways(format, fmt::make_format_args(args...));
}

// Writes why the process ends or did not start, whatever the level of the log is: as "error: ..."
// or as a JSON object.
void WriteErrorLine(std::string_view error);

}  // namespace tandem
