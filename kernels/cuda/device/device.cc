#include "kernels/cuda/device/device.h"

#include <algorithm>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/memory/own_bytes.h"

namespace tandem::cuda {
namespace {

constexpr double kGigabyte = 1e9;

void FreeDeviceMemory(std::byte* data, size_t size) {
  cudaFree(data);
  g_own_bytes -= size;
}
void FreeHostMemory(std::byte* data, size_t) { cudaFreeHost(data); }
void UnregisterHostMemory(std::byte* data, size_t) { cudaHostUnregister(data); }

}  // namespace

CudaDevice::CudaDevice(int index, const LaunchTarget& target, Sharing sharing)
    : index_(index), name_(fmt::format("cuda:{}", index)), target_(target), sharing_(sharing) {}

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(int index,
                                                             int most_compute_capability) {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index), fmt::format("cuda:{}: open", index));
  const auto attribute = [index](cudaDeviceAttr which, auto* value) {
    int found = 0;
    const cudaError_t error = cudaDeviceGetAttribute(&found, which, index);
    *value = found;
    return ToStatus(error, fmt::format("cuda:{}: ask for an attribute", index));
  };
  LaunchTarget target;
  int major = 0;
  int minor = 0;
  RETURN_IF_ERROR(attribute(cudaDevAttrMultiProcessorCount, &target.num_sms));
  RETURN_IF_ERROR(attribute(cudaDevAttrComputeCapabilityMajor, &major));
  RETURN_IF_ERROR(attribute(cudaDevAttrComputeCapabilityMinor, &minor));
  RETURN_IF_ERROR(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, &target.max_shared_bytes));
  RETURN_IF_ERROR(
      attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor, &target.shared_bytes_per_sm));
  target.compute_capability = 10 * major + minor;
  if (most_compute_capability > 0) {
    target.compute_capability = std::min(target.compute_capability, most_compute_capability);
  }
  return std::unique_ptr<CudaDevice>(new CudaDevice(index, target, SharingOf(index)));
}

absl::StatusOr<DeviceMemory> CudaDevice::Memory() const {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  DeviceMemory memory;
  RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&memory.free_bytes, &memory.total_bytes),
                       name_ + ": ask for free memory");
  memory.own_bytes = g_own_bytes;
  return memory;
}

absl::Status CudaDevice::OutOfMemory(size_t bytes) const {
  ASSIGN_OR_RETURN(const DeviceMemory memory, Memory());
  return ResourceExhausted(
      "{}: {:.1f} GB asked for, {:.1f} GB of {:.1f} GB are free: use a smaller model or KV pool, "
      "or end what else runs on this GPU",
      name_, static_cast<double>(bytes) / kGigabyte,
      static_cast<double>(memory.free_bytes) / kGigabyte,
      static_cast<double>(memory.total_bytes) / kGigabyte);
}

absl::StatusOr<DeviceBuffer> CudaDevice::Allocate(size_t bytes) {
  if (bytes == 0) return DeviceBuffer();
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return OutOfMemory(bytes);
  }
  RETURN_IF_CUDA_ERROR(error, fmt::format("{}: allocate {} bytes", name_, bytes));
  g_own_bytes += bytes;
  return DeviceBuffer(static_cast<std::byte*>(data), bytes, FreeDeviceMemory);
}

absl::StatusOr<DeviceBuffer> CudaDevice::AllocateHost(size_t bytes) {
  if (bytes == 0) return DeviceBuffer();
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  void* data = nullptr;
  const cudaError_t error = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (error == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return ResourceExhausted(
        "{}: {:.1f} GB of page-locked host memory asked for, which the machine does not give: use "
        "smaller host pools, or end what else holds memory",
        name_, static_cast<double>(bytes) / kGigabyte);
  }
  RETURN_IF_CUDA_ERROR(error, fmt::format("{}: allocate {} bytes of host memory", name_, bytes));
  return DeviceBuffer(static_cast<std::byte*>(data), bytes, FreeHostMemory);
}

absl::StatusOr<DeviceBuffer> CudaDevice::RegisterHost(std::span<std::byte> memory) {
  if (memory.empty()) return DeviceBuffer();
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  const cudaError_t error = cudaHostRegister(memory.data(), memory.size(),
                                             cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (error == cudaErrorMemoryAllocation || error == cudaErrorNotSupported) {
    cudaGetLastError();
    return ResourceExhausted(
        "{}: {} bytes of host memory cannot be page-locked: use smaller host pools, or end what "
        "else holds memory",
        name_, memory.size());
  }
  RETURN_IF_CUDA_ERROR(error, fmt::format("{}: page-lock {} bytes", name_, memory.size()));
  DeviceBuffer buffer(memory.data(), memory.size(), UnregisterHostMemory);
  void* reached = nullptr;
  RETURN_IF_CUDA_ERROR(cudaHostGetDevicePointer(&reached, memory.data(), 0), name_);
  if (reached == memory.data()) return buffer;
  return FailedPrecondition("{} does not reach page-locked memory by the host's addresses", name_);
}

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::NewStream() { return NewStreamOf(0); }

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::NewComputeStream() {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  int least = 0;
  int greatest = 0;
  RETURN_IF_CUDA_ERROR(cudaDeviceGetStreamPriorityRange(&least, &greatest), name_);
  return NewStreamOf(greatest);
}

absl::StatusOr<std::unique_ptr<Stream>> CudaDevice::NewStreamOf(int priority) {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  cudaStream_t handle = nullptr;
  RETURN_IF_CUDA_ERROR(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, priority),
                       name_ + ": make a stream");
  return std::make_unique<CudaStream>(index_, handle, events_);
}

absl::StatusOr<DeviceBuffer> CudaDevice::AllocateShared(size_t bytes) {
  if (bytes == 0) return DeviceBuffer();
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  absl::StatusOr<DeviceBuffer> memory = AllocateSharedMemory(index_, sharing_, bytes);
  if (absl::IsResourceExhausted(memory.status())) return OutOfMemory(bytes);
  if (!memory.ok()) return Annotate(memory.status(), name_);
  return memory;
}

absl::StatusOr<MemoryHandle> CudaDevice::Share(std::span<const std::byte> memory) {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  absl::StatusOr<MemoryHandle> handle = ShareMemory(memory);
  if (!handle.ok()) return Annotate(handle.status(), name_);
  return handle;
}

absl::StatusOr<DeviceBuffer> CudaDevice::OpenShared(const MemoryHandle& handle) {
  RETURN_IF_CUDA_ERROR(cudaSetDevice(index_), name_);
  absl::StatusOr<DeviceBuffer> memory = OpenSharedMemory(index_, handle);
  if (!memory.ok()) return Annotate(memory.status(), name_);
  return memory;
}

}  // namespace tandem::cuda
