#include "base/check.h"

#include <cstdlib>

#include "spdlog/spdlog.h"

namespace tandem::internal {

void CheckFailed(const char* file, int line, const char* condition, std::string_view message) {
  spdlog::critical("check_failed at={}:{} condition=\"{}\" {}", file, line, condition, message);
  spdlog::shutdown();
  std::abort();
}

}  // namespace tandem::internal
