#include "kernels/cuda/device/backend.h"

#include <cuda_runtime.h>

#include <memory>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "fmt/ranges.h"
#include "kernels/cuda/device/architectures.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/gemm/cublaslt_library.h"
#include "kernels/cuda/ops_cuda.h"

namespace tandem::cuda {
namespace {

constexpr std::string_view kArchitectures = TANDEM_CUDA_ARCHITECTURES;
constexpr int kLowestCapability = 80;

// A CUDA version as text: "13.0" for the runtime's number 13000.
std::string VersionText(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// How many GPUs there are, or why none can be used.
absl::StatusOr<int> CountDevices() {
  int driver = 0;
  int runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  int count = 0;  // cudaGetDeviceCount leaves it 0 without a driver
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (driver == 0) {
    return FailedPrecondition(
        "this machine has no NVIDIA driver: install one for CUDA {} or later, or use --device cpu",
        VersionText(runtime));
  }
  // A driver serves the CUDA runtimes of its own major version, whatever their minor version.
  if (error == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000) {
    return FailedPrecondition(
        "the NVIDIA driver is for CUDA {}, but this build needs {}: update the driver, or use "
        "--device cpu",
        VersionText(driver), VersionText(runtime));
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return FailedPrecondition(
        "the NVIDIA driver finds no GPU: see nvidia-smi and CUDA_VISIBLE_DEVICES, or use --device "
        "cpu");
  }
  if (error != cudaSuccess) {
    return FailedPrecondition(
        "the NVIDIA driver does not start, {} ({}): see nvidia-smi, or use --device cpu",
        cudaGetErrorString(error), cudaGetErrorName(error));
  }
  return count;
}

absl::Status CheckCapability(int index) {
  int major = 0;
  int minor = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index);
  const int capability = 10 * major + minor;
  if (capability < kLowestCapability) {
    return FailedPrecondition(
        "the GPU has compute capability {}.{}, but 8.0 or later is needed: use another GPU, or "
        "--device cpu",
        major, minor);
  }
  if (HasCodeFor(kArchitectures, capability)) return absl::OkStatus();
  return FailedPrecondition(
      "the GPU has compute capability {}.{}, but this build has kernels for {}: build with "
      "-DTANDEM_CUDA_ARCHITECTURES={}-real, or use --device cpu",
      major, minor, kArchitectures, capability);
}

std::string DeviceName(int index) { return fmt::format("cuda:{}", index); }

// What errors about a device begin with.
std::string Context(int index) { return "device " + DeviceName(index); }

std::vector<std::string> Names(int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.push_back(DeviceName(i));
  return names;
}

// The cuBLASLt library, opened once and kept, since opening takes a good part of a second.
const absl::StatusOr<CublasLtLibrary>& Library() {
  static const auto& library =
      *new absl::StatusOr<CublasLtLibrary>(CublasLtLibrary::Open(CublasLtNames()));
  return library;
}

absl::Status CheckMachine(int index) {
  ASSIGN_OR_RETURN(const int count, CountDevices());
  if (index >= count) {
    return NotFound("there is no such GPU: choose one of {}", fmt::join(Names(count), ", "));
  }
  RETURN_IF_ERROR(CheckCapability(index));
  return Library().status();
}

void LogDevice(int index, Sharing sharing) {
  cudaDeviceProp properties = {};
  int driver = 0;
  cudaGetDeviceProperties(&properties, index);
  cudaDriverGetVersion(&driver);
  LogInfo(
      "device={} gpu=\"{}\" capability={}.{} sms={} memory_gb={:.1f} driver_cuda={} "
      "cublaslt={} sharing={}",
      DeviceName(index), properties.name, properties.major, properties.minor,
      properties.multiProcessorCount, static_cast<double>(properties.totalGlobalMem) / 1e9,
      VersionText(driver), Library()->get_version(), NameOf(sharing));
}

}  // namespace

absl::StatusOr<Backend> OpenBackend(int index, const BackendOptions& options) {
  RETURN_IF_ERROR(CheckDevice(index));
  absl::StatusOr<std::unique_ptr<CudaDevice>> device =
      CudaDevice::Open(index, options.most_compute_capability);
  if (!device.ok()) return Annotate(device.status(), Context(index));
  LogDevice(index, (*device)->sharing());
  auto ops = std::make_unique<CudaOps>(**device, *Library());
  return Backend{.device = *std::move(device), .ops = std::move(ops)};
}

absl::Status CheckDevice(int index) { return Annotate(CheckMachine(index), Context(index)); }

std::vector<std::string> DeviceNames() {
  const absl::StatusOr<int> count = CountDevices();
  std::vector<std::string> names;
  for (int i = 0; count.ok() && i < *count; ++i) {
    if (CheckMachine(i).ok()) names.push_back(DeviceName(i));
  }
  return names;
}

}  // namespace tandem::cuda
