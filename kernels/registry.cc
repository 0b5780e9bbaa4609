#include "kernels/registry.h"

#include <sched.h>

#include <thread>

#include "base/status.h"
#include "fmt/ranges.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/ops_cpu.h"

namespace tandem {
namespace {

// Cores that this process may run on: a container or taskset may allow fewer than there are.
int NumAllowedCores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

absl::StatusOr<Backend> OpenBackend(std::string_view name, const BackendOptions& options) {
  if (name == "cpu") {
    if (options.num_threads < 0) {
      return InvalidArgument("num_threads={}: give 1 or more, or 0 for one per core",
                             options.num_threads);
    }
    const int num_threads = options.num_threads > 0 ? options.num_threads : NumAllowedCores();
    return Backend{.device = NewCpuDevice(), .ops = std::make_unique<CpuOps>(num_threads)};
  }
  if (name == "cuda" || name.substr(0, 5) == "cuda:") {
    return Unimplemented("device {}: this build has no CUDA backend; it has {}", name,
                         fmt::join(BackendNames(), ", "));
  }
  return NotFound("device {}: there is none of that name; choose one of {}", name,
                  fmt::join(BackendNames(), ", "));
}

std::vector<std::string> BackendNames() { return {"cpu"}; }

}  // namespace tandem
