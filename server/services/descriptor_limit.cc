#include "server/services/descriptor_limit.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tandem {
namespace {

constexpr rlim_t kLeastDescriptors = 64;

}  // namespace

absl::StatusOr<int> RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return Internal("cannot read the limit on open files: {}", ErrnoMessage(errno));
  }
  const rlimit raised = {.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  if (limit.rlim_cur < limit.rlim_max && setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  if (limit.rlim_cur < kLeastDescriptors) {
    return ResourceExhausted(
        "this process may open {} files, and needs at least {}: raise the limit (ulimit -n)",
        limit.rlim_cur, kLeastDescriptors);
  }
  constexpr rlim_t kMost = std::numeric_limits<int>::max();
  return static_cast<int>(std::min(limit.rlim_cur, kMost));
}

int ReservedDescriptors(int limit) {
  constexpr int kLeast = 32;
  constexpr int kMost = 1024;
  return std::clamp(limit / 4, kLeast, kMost);
}

}  // namespace tandem
