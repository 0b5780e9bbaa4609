// The driver's virtual memory management, and how the runtime finds it.
#include <cuda.h>
#include <fcntl.h>

#include <cstdint>
#include <cstring>
#include <map>

#include "tests/simt/memory_file.h"
#include "tests/simt/runtime.h"

namespace simt {
namespace {

constexpr size_t kGranule = size_t{2} << 20;

// Memory of an allocation, counted as the device's while this process has a handle or a mapping of
// it. That of others is counted there.
struct Physical {
  std::shared_ptr<const MemoryFile> file;
  bool counted = false;

  ~Physical() {
    if (counted) TheMachine().device_bytes -= file->bytes();
  }
};

struct Range {
  size_t bytes;
  std::shared_ptr<Physical> mapped;
};

// Guarded by the machine's mutex.
struct VirtualMemory {
  std::map<CUmemGenericAllocationHandle, std::shared_ptr<Physical>> handles;
  std::map<CUdeviceptr, Range> ranges;
  CUmemGenericAllocationHandle last_handle = 0;

  CUmemGenericAllocationHandle Add(std::shared_ptr<Physical> physical) {
    handles[++last_handle] = std::move(physical);
    return last_handle;
  }
  std::shared_ptr<Physical> Find(CUmemGenericAllocationHandle handle) const {
    const auto found = handles.find(handle);
    return found != handles.end() ? found->second : nullptr;
  }
  // The range that begins and ends there; null when there is none.
  Range* FindRange(CUdeviceptr address, size_t bytes) {
    const auto found = ranges.find(address);
    return found != ranges.end() && found->second.bytes == bytes ? &found->second : nullptr;
  }
};

VirtualMemory& TheVirtualMemory() {
  static VirtualMemory& memory = *new VirtualMemory;  // never destroyed, as the machine
  return memory;
}

void* PointerTo(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

struct ErrorText {
  CUresult error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

struct EntryPoint {
  const char* name;
  void* function;
};
const EntryPoint kEntryPoints[] = {
    {"cuGetErrorName", reinterpret_cast<void*>(cuGetErrorName)},
    {"cuGetErrorString", reinterpret_cast<void*>(cuGetErrorString)},
    {"cuMemAddressFree", reinterpret_cast<void*>(cuMemAddressFree)},
    {"cuMemAddressReserve", reinterpret_cast<void*>(cuMemAddressReserve)},
    {"cuMemCreate", reinterpret_cast<void*>(cuMemCreate)},
    {"cuMemExportToShareableHandle", reinterpret_cast<void*>(cuMemExportToShareableHandle)},
    {"cuMemGetAddressRange", reinterpret_cast<void*>(cuMemGetAddressRange)},
    {"cuMemGetAllocationGranularity", reinterpret_cast<void*>(cuMemGetAllocationGranularity)},
    {"cuMemImportFromShareableHandle", reinterpret_cast<void*>(cuMemImportFromShareableHandle)},
    {"cuMemMap", reinterpret_cast<void*>(cuMemMap)},
    {"cuMemRelease", reinterpret_cast<void*>(cuMemRelease)},
    {"cuMemSetAccess", reinterpret_cast<void*>(cuMemSetAccess)},
    {"cuMemUnmap", reinterpret_cast<void*>(cuMemUnmap)},
};

}  // namespace
}  // namespace simt

using simt::DeviceArena;
using simt::Machine;
using simt::MemoryKind;
using simt::TheMachine;
using simt::TheVirtualMemory;

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  *function = nullptr;
  for (const simt::EntryPoint& known : simt::kEntryPoints) {
    if (std::strcmp(known.name, symbol) == 0) *function = known.function;
  }
  if (result != nullptr) {
    *result =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return cudaSuccess;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  *name = nullptr;
  for (const simt::ErrorText& known : simt::kErrors) {
    if (known.error == error) *name = known.name;
  }
  return *name != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = nullptr;
  for (const simt::ErrorText& known : simt::kErrors) {
    if (known.error == error) *text = known.text;
  }
  return *text != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = simt::kGranule;
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (properties->location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (bytes == 0 || bytes % simt::kGranule != 0) return CUDA_ERROR_INVALID_VALUE;
  if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
      machine.config.no_file_handles) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (machine.device_bytes + bytes > machine.config.memory_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  auto physical = std::make_shared<simt::Physical>();
  physical->file = simt::MemoryFile::New(bytes);
  if (physical->file == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ++machine.counters.allocations;
  physical->counted = true;
  machine.device_bytes += bytes;
  *handle = TheVirtualMemory().Add(std::move(physical));
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(TheMachine().mutex);
  return TheVirtualMemory().handles.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void* shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long) {
  std::lock_guard lock(TheMachine().mutex);
  const auto physical = TheVirtualMemory().Find(handle);
  if (physical == nullptr || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int file = fcntl(physical->file->file(), F_DUPFD_CLOEXEC, 0);
  if (file < 0) return CUDA_ERROR_NOT_PERMITTED;
  *static_cast<int*>(shareable) = file;
  return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* shareable,
                                        CUmemAllocationHandleType type) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  if (machine.config.no_file_handles) return CUDA_ERROR_NOT_SUPPORTED;
  if (machine.config.refuse_imports) return CUDA_ERROR_NOT_PERMITTED;
  auto physical = std::make_shared<simt::Physical>();
  physical->file = simt::MemoryFile::Open(static_cast<int>(reinterpret_cast<intptr_t>(shareable)));
  if (physical->file == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = TheVirtualMemory().Add(std::move(physical));
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (bytes == 0 || bytes % simt::kGranule != 0) return CUDA_ERROR_INVALID_VALUE;
  void* const pointer = machine.arena.Reserve(bytes);
  if (pointer == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = reinterpret_cast<CUdeviceptr>(pointer);
  TheVirtualMemory().ranges[*address] = {bytes, nullptr};
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  simt::Range* range = TheVirtualMemory().FindRange(address, bytes);
  if (range == nullptr || range->mapped != nullptr) return CUDA_ERROR_INVALID_VALUE;
  TheVirtualMemory().ranges.erase(address);
  machine.arena.Free(simt::PointerTo(address));
  return CUDA_SUCCESS;
}

// Whole ranges only. What lies at the beginning of an allocation can be mapped by itself.
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  simt::Range* range = TheVirtualMemory().FindRange(address, bytes);
  auto physical = TheVirtualMemory().Find(handle);
  if (range == nullptr || range->mapped != nullptr || physical == nullptr || offset != 0 ||
      bytes > physical->file->bytes()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  machine.arena.MapFile(simt::PointerTo(address), physical->file->file(),
                        DeviceArena::Reach::kNothing);
  range->mapped = std::move(physical);
  return CUDA_SUCCESS;
}

// Work that still uses the memory is not waited for.
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  simt::Range* range = TheVirtualMemory().FindRange(address, bytes);
  if (range == nullptr || range->mapped == nullptr) return CUDA_ERROR_INVALID_VALUE;
  machine.arena.Unmap(simt::PointerTo(address));
  machine.allocations.erase(static_cast<uintptr_t>(address));
  range->mapped = nullptr;
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* accesses,
                        size_t count) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  simt::Range* range = TheVirtualMemory().FindRange(address, bytes);
  if (range == nullptr || range->mapped == nullptr || count != 1) return CUDA_ERROR_INVALID_VALUE;
  if (accesses->location.id != 0) return CUDA_ERROR_INVALID_DEVICE;
  using Reach = DeviceArena::Reach;
  const Reach reach = accesses->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? Reach::kReadWrite
                      : accesses->flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? Reach::kRead
                                                                            : Reach::kNothing;
  machine.arena.SetReach(simt::PointerTo(address), reach);
  machine.allocations[static_cast<uintptr_t>(address)] = {bytes, MemoryKind::kDevice, false};
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange(CUdeviceptr* begin, size_t* bytes, CUdeviceptr address) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  auto next = machine.allocations.upper_bound(static_cast<uintptr_t>(address));
  if (next == machine.allocations.begin()) return CUDA_ERROR_INVALID_VALUE;
  const auto& [start, allocation] = *std::prev(next);
  if (address >= start + allocation.bytes || allocation.kind != MemoryKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *begin = start;
  *bytes = allocation.bytes;
  return CUDA_SUCCESS;
}
