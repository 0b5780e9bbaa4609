#include "kernels/registry.h"

#include <sched.h>

#include <charconv>
#include <optional>
#include <thread>

#include "base/status.h"
#include "fmt/ranges.h"
#include "kernels/cpu/device.h"
#include "kernels/cpu/faster_compute.h"
#include "kernels/cpu/ops_cpu.h"
#include "kernels/cpu/processor.h"
#include "kernels/cuda/device/backend.h"

namespace tandem {
namespace {

constexpr std::string_view kCpu = "cpu";
constexpr std::string_view kRoundingCpu = "cpu-bf16";
constexpr std::string_view kFasterCpu = "cpu-auto";

// The number of cores that this process may run on: a container or taskset may allow fewer than
// there are.
int NumAllowedCores() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::thread::hardware_concurrency());
}

// The index in "cuda:3"; nothing for any other name.
std::optional<int> CudaIndex(std::string_view name) {
  if (name.substr(0, 5) != "cuda:") return std::nullopt;
  const std::string_view digits = name.substr(5);
  int index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool right = error == std::errc() && end == digits.data() + digits.size() && index >= 0;
  return right ? std::optional(index) : std::nullopt;
}

}  // namespace

std::string ResolveDeviceName(std::string_view name) {
  if (name == "cuda") return "cuda:0";
  if (name != kFasterCpu) return std::string(name);
  const bool rounds = cpu::FasterCompute() == cpu::CpuCompute::kBF16;
  return std::string(rounds ? kRoundingCpu : kCpu);
}

absl::StatusOr<Backend> OpenBackend(std::string_view wanted, const BackendOptions& options) {
  RETURN_IF_ERROR(CheckProcessor());  // a GPU's worker hashes and encodes on the host, too
  const std::string name = ResolveDeviceName(wanted);
  if (IsCpuName(name)) {
    if (options.num_threads < 0) {
      return InvalidArgument("num_threads={}: give 1 or more, or 0 for one per core",
                             options.num_threads);
    }
    const int num_threads = options.num_threads > 0 ? options.num_threads : NumAllowedCores();
    const auto compute = name == kRoundingCpu ? cpu::CpuCompute::kBF16 : cpu::CpuCompute::kF32;
    return Backend{.device = NewCpuDevice(name),
                   .ops = std::make_unique<cpu::CpuOps>(num_threads, compute)};
  }
  if (const std::optional<int> index = CudaIndex(name)) return cuda::OpenBackend(*index, options);
  return NotFound("device {}: there is none of that name; choose one of {}, or {}", name,
                  fmt::join(BackendNames(), ", "), kFasterCpu);
}

std::vector<std::string> BackendNames() {
  std::vector<std::string> names = {std::string(kCpu), std::string(kRoundingCpu)};
  for (std::string& name : cuda::DeviceNames()) names.push_back(std::move(name));
  return names;
}

bool IsCpuName(std::string_view name) {
  return name == kCpu || name == kRoundingCpu || name == kFasterCpu;
}

absl::Status GpuStatus() { return cuda::CheckDevice(0); }

}  // namespace tandem
