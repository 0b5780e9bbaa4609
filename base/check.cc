#include "base/check.h"

#include <cstdlib>

#include "base/log.h"

namespace tandem::internal {

void CheckFailed(const char* file, int line, const char* condition, std::string_view message) {
  Log(LogLevel::kCritical, "check_failed at={}:{} condition=\"{}\" {}", file, line, condition,
      message);
  CloseLog();
  std::abort();
}

}  // namespace tandem::internal
