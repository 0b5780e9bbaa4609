#include "base/log.h"

#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>

#include "base/line_writer.h"
#include "base/status.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kCritical:
      return spdlog::level::critical;
  }
  return spdlog::level::critical;
}

// Never destroyed: threads may log until the process has ended.
LineWriter& Stderr() {
  static LineWriter& writer = *new LineWriter(STDERR_FILENO);
  return writer;
}

class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    Stderr().Write({line.data(), line.size()});
  }
  void flush_() override {}
};

}  // namespace

absl::Status SetUpLogging(std::string_view level, std::string_view name) {
  const std::string wanted(level);
  const spdlog::level::level_enum parsed = spdlog::level::from_str(wanted);
  if (parsed == spdlog::level::off && wanted != "off") {
    return InvalidArgument(
        "log level \"{}\" is unknown; use trace, debug, info, warn, error or off", wanted);
  }
  auto logger = std::make_shared<spdlog::logger>(std::string(name), std::make_shared<StderrSink>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %-5l [%n] %v", spdlog::pattern_time_type::utc);
  logger->set_level(parsed);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

bool IsLogged(LogLevel level) { return spdlog::default_logger_raw()->should_log(ToSpdlog(level)); }

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  const std::string line = fmt::vformat(format, args);
  spdlog::default_logger_raw()->log(ToSpdlog(level), spdlog::string_view_t(line));
}

void CloseLog() { spdlog::shutdown(); }

void WriteToStderr(std::string_view line) { Stderr().Write(line); }

uint64_t LogLinesDropped() { return Stderr().dropped(); }

}  // namespace tandem
