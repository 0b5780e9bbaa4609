#include "base/log.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include "base/line_writer.h"
#include "base/log_record.h"
#include "base/log_setup.h"
#include "base/status.h"
#include "fmt/format.h"
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

// The writer of the log. Never destroyed: threads may log until the process has ended.
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

std::atomic<LogFormat> format_of_lines = LogFormat::kText;

bool IsJson() { return format_of_lines == LogFormat::kJson; }

// The current time in UTC, as in 2026-11-29T13:37:41.123456Z.
std::string TimeText() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const auto seconds = static_cast<std::time_t>(us / 1'000'000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     us % 1'000'000);
}

std::string ThreadName() {
  std::array<char, 16> name{};
  return pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 ? name.data() : "";
}

std::string_view Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
    case LogLevel::kCritical:
      return "critical";
  }
  return "critical";
}

std::string JsonLine(LogLevel level, const LogRecord& record) {
  return ToJsonLine({.time = TimeText(),
                     .level = Name(level),
                     .process = spdlog::default_logger_raw()->name(),
                     .thread = ThreadName()},
                    record);
}

std::string LineOf(LogLevel level, fmt::string_view format, fmt::format_args args) {
  LogRecord record = ToLogRecord(format, args);
  return IsJson() ? JsonLine(level, record) : std::move(record.text);
}

// The note about missing lines as a line of JSON, for logs in which every line has to be JSON.
std::string JsonNote(uint64_t missing) {
  const LogRecord record{
      .text = {},
      .message = "lines are missing here: nobody read them in time",
      .fields = {{.key = "missing", .value = std::to_string(missing), .is_json = true}}};
  return JsonLine(LogLevel::kWarn, record);
}

absl::Status SetUp(LogFormat format, std::string_view level, std::string_view name) {
  const std::string wanted(level);
  const spdlog::level::level_enum parsed = spdlog::level::from_str(wanted);
  if (parsed == spdlog::level::off && wanted != "off") {
    return InvalidArgument(
        "log level \"{}\" is unknown; use trace, debug, info, warn, error or off", wanted);
  }
  auto logger = std::make_shared<spdlog::logger>(std::string(name), std::make_shared<StderrSink>());
  const char* const pattern =
      format == LogFormat::kJson ? "%v" : "%Y-%m-%dT%H:%M:%S.%eZ %-5l [%n] %v";
  logger->set_pattern(pattern, spdlog::pattern_time_type::utc);
  logger->set_level(parsed);
  spdlog::set_default_logger(std::move(logger));
  format_of_lines = format;
  if (format == LogFormat::kJson) Stderr().SetNote(&JsonNote);
  return absl::OkStatus();
}

}  // namespace

absl::Status SetUpLogging(std::string_view level, std::string_view name) {
  return SetUp(LogFormat::kText, level, name);
}

absl::Status SetUpLogging(const LogSetup& setup, std::string_view name) {
  if (setup.format != "text" && setup.format != "json") {
    return InvalidArgument("log format \"{}\" is unknown; use text or json", setup.format);
  }
  return SetUp(setup.format == "json" ? LogFormat::kJson : LogFormat::kText, setup.level, name);
}

bool IsLogged(LogLevel level) { return spdlog::default_logger_raw()->should_log(ToSpdlog(level)); }

void WriteLog(LogLevel level, fmt::string_view format, fmt::format_args args) {
  const std::string line = LineOf(level, format, args);
  spdlog::default_logger_raw()->log(ToSpdlog(level), spdlog::string_view_t(line));
}

void WriteLogAlways(fmt::string_view format, fmt::format_args args) {
  const std::string line = LineOf(LogLevel::kInfo, format, args);
  const spdlog::logger& logger = *spdlog::default_logger_raw();
  const spdlog::details::log_msg message(logger.name(), spdlog::level::info, line);
  for (const spdlog::sink_ptr& sink : logger.sinks()) sink->log(message);
}

void WriteErrorLine(std::string_view error) {
  if (IsJson()) {
    const std::string message(error);
    WriteToStderr(JsonLine(LogLevel::kError, {.text = message, .message = message, .fields = {}}) +
                  "\n");
  } else {
    WriteToStderr(fmt::format("error: {}\n", error));
  }
}

void CloseLog() { spdlog::shutdown(); }

void WriteToStderr(std::string_view line) { Stderr().Write(line); }

uint64_t LogLinesDropped() { return Stderr().dropped(); }

}  // namespace tandem
