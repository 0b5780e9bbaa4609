#include "base/log.h"

#include <memory>
#include <string>

#include "base/status.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace tandem {

absl::Status SetUpLogging(std::string_view level, std::string_view name) {
  const std::string wanted(level);
  const spdlog::level::level_enum parsed = spdlog::level::from_str(wanted);
  if (parsed == spdlog::level::off && wanted != "off") {
    return InvalidArgument("log level \"{}\" is unknown; use trace, debug, info, warn, error or off",
                           wanted);
  }
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::logger>(std::string(name), std::move(sink));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%eZ %-5l [%n] %v", spdlog::pattern_time_type::utc);
  logger->set_level(parsed);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return absl::OkStatus();
}

}  // namespace tandem
