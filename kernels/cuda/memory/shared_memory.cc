#include "kernels/cuda/memory/shared_memory.h"

#include <cuda_runtime.h>

#include <cstring>
#include <optional>
#include <utility>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/driver_api.h"
#include "kernels/cuda/memory/mapped_memory.h"
#include "kernels/cuda/memory/own_bytes.h"
#include "kernels/cuda/memory/shared_places.h"

namespace tandem::cuda {
namespace {

using Kind = MemoryHandle::Kind;

// cudaMalloc carves small allocations out of pages of this size, and a token opens whole pages:
// memory for tokens takes whole ones, so that a token opens nothing else.
constexpr size_t kPageBytes = size_t{2} << 20;
// The largest size of a handle: more than any device has, far from where sizes would overflow.
constexpr uint64_t kMaxBytes = uint64_t{1} << 46;
static_assert(sizeof(cudaIpcMemHandle_t) == MemoryHandle::kTokenBytes);

size_t WholePages(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

absl::StatusOr<DeviceBuffer> AllocateFileMemory(int device, size_t bytes) {
  ASSIGN_OR_RETURN(ExportedMemory exported, MapNewMemory(device, bytes));
  std::byte* const data = exported.memory.data;
  AllSharedPlaces().Add(data, {.kind = Kind::kDeviceFile,
                               .origin = SharedPlace::Origin::kAllocated,
                               .device = device,
                               .bytes = bytes,
                               .mapped_bytes = exported.memory.mapped_bytes,
                               .file = std::move(exported.file)});
  return DeviceBuffer(data, bytes, FreeSharedPlace);
}

absl::StatusOr<DeviceBuffer> AllocateTokenMemory(int device, size_t bytes) {
  void* data = nullptr;
  RETURN_IF_CUDA_ERROR(cudaMalloc(&data, WholePages(bytes)), "allocate memory to share");
  auto* const begin = static_cast<std::byte*>(data);
  AllSharedPlaces().Add(begin, {.kind = Kind::kCudaIpc,
                                .origin = SharedPlace::Origin::kAllocated,
                                .device = device,
                                .bytes = bytes,
                                .mapped_bytes = 0,
                                .file = UniqueFd()});
  return DeviceBuffer(begin, bytes, FreeSharedPlace);
}

absl::StatusOr<DeviceBuffer> OpenFileMemory(int device, const MemoryHandle& handle) {
  if (!handle.file.valid()) {
    return InvalidArgument("a handle of {} bytes without its file", handle.bytes);
  }
  absl::StatusOr<MappedMemory> memory = MapMemoryOfFile(device, handle.file, handle.bytes);
  if (!memory.ok()) {
    return Annotate(memory.status(), fmt::format("open {} bytes behind a file", handle.bytes));
  }
  AllSharedPlaces().Add(memory->data, {.kind = Kind::kDeviceFile,
                                       .origin = SharedPlace::Origin::kOpened,
                                       .device = device,
                                       .bytes = handle.bytes,
                                       .mapped_bytes = memory->mapped_bytes,
                                       .file = UniqueFd()});
  return DeviceBuffer(memory->data, handle.bytes, FreeSharedPlace);
}

absl::Status TokenFailed(cudaError_t error, uint64_t bytes) {
  cudaGetLastError();
  const bool no_token = error == cudaErrorInvalidValue || error == cudaErrorInvalidResourceHandle;
  return MakeStatus(
      no_token ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kFailedPrecondition,
      "open {} bytes behind a token: {} ({})", bytes, cudaGetErrorString(error),
      cudaGetErrorName(error));
}

// Checks that the memory that was opened at `data` has `bytes` bytes.
absl::Status CheckTokenMemory(const void* data, uint64_t bytes) {
  CUdeviceptr begin = 0;
  size_t size = 0;
  if (Driver() == nullptr) return FailedPrecondition("the driver does not say how long memory is");
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  const CUresult result = Driver()->mem_get_address_range(&begin, &size, address);
  if (result != CUDA_SUCCESS) {
    return FailedPrecondition("ask how long memory is: {}", DriverMessage(*Driver(), result));
  }
  if (begin + size - address == WholePages(bytes)) return absl::OkStatus();
  return InvalidArgument("a token of {} bytes, but there are {} behind it", bytes,
                         begin + size - address);
}

absl::StatusOr<DeviceBuffer> OpenTokenMemory(int device, const MemoryHandle& handle) {
  cudaIpcMemHandle_t token;
  std::memcpy(&token, handle.token.data(), sizeof(token));
  void* opened = nullptr;
  const cudaError_t error = cudaIpcOpenMemHandle(&opened, token, cudaIpcMemLazyEnablePeerAccess);
  if (error != cudaSuccess) return TokenFailed(error, handle.bytes);
  auto* const data = static_cast<std::byte*>(opened);
  absl::Status status = CheckTokenMemory(data, handle.bytes);
  if (status.ok() && !AllSharedPlaces().Add(data, {.kind = Kind::kCudaIpc,
                                                   .origin = SharedPlace::Origin::kOpened,
                                                   .device = device,
                                                   .bytes = handle.bytes,
                                                   .mapped_bytes = 0,
                                                   .file = UniqueFd()})) {
    status = FailedPrecondition("a token whose memory is open in this process already");
  }
  if (!status.ok()) {
    cudaIpcCloseMemHandle(data);
    return status;
  }
  return DeviceBuffer(data, handle.bytes, FreeSharedPlace);
}

// FilesWork and TokensWork free what they try without waiting for the device, unlike
// FreeSharedPlace: nothing has used the memory, and another thread of the process may record
// meanwhile.
bool FilesWork(int device) {
  const absl::StatusOr<ExportedMemory> memory = MapNewMemory(device, 1);
  if (memory.ok()) UnmapMemory(memory->memory);
  return memory.ok();
}

bool TokensWork() {
  void* data = nullptr;
  cudaIpcMemHandle_t token;
  const bool works = cudaMalloc(&data, kPageBytes) == cudaSuccess &&
                     cudaIpcGetMemHandle(&token, data) == cudaSuccess;
  cudaFree(data);
  cudaGetLastError();
  return works;
}

}  // namespace

std::string_view NameOf(Sharing sharing) {
  switch (sharing) {
    case Sharing::kNone:
      return "none";
    case Sharing::kFiles:
      return "files";
    case Sharing::kTokens:
      return "tokens";
  }
  return "?";
}

Sharing SharingOf(int device) {
  if (FilesWork(device)) return Sharing::kFiles;
  return TokensWork() ? Sharing::kTokens : Sharing::kNone;
}

absl::StatusOr<DeviceBuffer> AllocateSharedMemory(int device, Sharing sharing, size_t bytes) {
  if (sharing == Sharing::kNone) {
    return Unimplemented("the driver offers no memory that other processes could open");
  }
  if (bytes > kMaxBytes) return ResourceExhausted("{} bytes are more than a device has", bytes);
  absl::StatusOr<DeviceBuffer> memory = sharing == Sharing::kFiles
                                            ? AllocateFileMemory(device, bytes)
                                            : AllocateTokenMemory(device, bytes);
  if (memory.ok()) g_own_bytes += bytes;
  return memory;
}

absl::StatusOr<MemoryHandle> ShareMemory(std::span<const std::byte> memory) {
  std::optional<MemoryHandle> handle = AllSharedPlaces().Find(memory);
  if (!handle.has_value()) {
    return InvalidArgument("{} bytes at {} are not what AllocateShared gave", memory.size(),
                           static_cast<const void*>(memory.data()));
  }
  if (handle->kind == Kind::kDeviceFile) {
    if (handle->file.valid()) return *std::move(handle);
    return ResourceExhausted("no file for memory to share: raise the limit of open files");
  }
  cudaIpcMemHandle_t token;
  void* const data = const_cast<std::byte*>(memory.data());
  RETURN_IF_CUDA_ERROR(cudaIpcGetMemHandle(&token, data), "ask for a token of memory");
  std::memcpy(handle->token.data(), &token, sizeof(token));
  return *std::move(handle);
}

absl::StatusOr<DeviceBuffer> OpenSharedMemory(int device, const MemoryHandle& handle) {
  if (handle.kind == Kind::kHostFile) {
    return FailedPrecondition("memory of the host, not of a GPU: run both sides on the same kind");
  }
  if (handle.bytes == 0 || handle.bytes > kMaxBytes) {
    return InvalidArgument("a handle of {} bytes", handle.bytes);
  }
  if (handle.kind == Kind::kDeviceFile) return OpenFileMemory(device, handle);
  if (handle.kind == Kind::kCudaIpc) return OpenTokenMemory(device, handle);
  return InvalidArgument("a handle of unknown kind {}", static_cast<int>(handle.kind));
}

}  // namespace tandem::cuda
