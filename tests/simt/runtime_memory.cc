// Memory and copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/simt/ipc_memory.h"
#include "tests/simt/runtime.h"

namespace simt {
namespace {

constexpr size_t kAlignment = 4096;

// Of the host, pinned. Uninitialised memory holds NaN in every float format.
void* NewPinned(size_t bytes) {
  void* memory = nullptr;
  if (posix_memalign(&memory, kAlignment, bytes) != 0) return nullptr;
  std::memset(memory, 0xff, bytes);
  return memory;
}

// Entry to a call that may not be made while this thread is kept from synchronous calls.
cudaError_t Enter(Machine& machine) {
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return error;
  return machine.AllowSynchronous();
}

cudaError_t Allocate(void** pointer, size_t bytes, MemoryKind kind) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = Enter(machine); error != cudaSuccess) return Report(error);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  ++machine.counters.allocations;
  if (kind == MemoryKind::kDevice && machine.device_bytes + bytes > machine.config.memory_bytes) {
    return Report(cudaErrorMemoryAllocation);
  }
  const bool on_device = kind == MemoryKind::kDevice;
  void* memory = on_device ? machine.arena.Allocate(bytes) : NewPinned(bytes);
  if (memory == nullptr) return Report(cudaErrorMemoryAllocation);
  if (kind == MemoryKind::kDevice) machine.device_bytes += bytes;
  machine.allocations[reinterpret_cast<uintptr_t>(memory)] = {bytes, kind, true};
  *pointer = memory;
  return cudaSuccess;
}

// What the runtime frees it waits for, on all streams.
cudaError_t Free(void* pointer, MemoryKind kind, bool owned) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = Enter(machine); error != cudaSuccess) return Report(error);
  if (pointer == nullptr) return cudaSuccess;
  const auto found = machine.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == machine.allocations.end() || found->second.kind != kind ||
      found->second.owned != owned) {
    return Report(owned ? cudaErrorInvalidValue : cudaErrorHostMemoryNotRegistered);
  }
  ++machine.counters.device_synchronizations;
  machine.DrainAll();
  if (kind == MemoryKind::kDevice) machine.device_bytes -= found->second.bytes;
  machine.allocations.erase(found);
  if (kind == MemoryKind::kDevice) {
    ForgetToken(pointer);
    machine.arena.Free(pointer);
  } else if (owned) {
    std::free(pointer);
  }
  return cudaSuccess;
}

struct CopyPlan {
  MemoryKind to;
  MemoryKind from;
};

// Where the two ends are; an error when they are not what `kind` says or not that long.
cudaError_t PlanCopy(const Machine& machine, void* to, const void* from, size_t bytes,
                     cudaMemcpyKind kind, CopyPlan* plan) {
  size_t to_bytes = 0;
  size_t from_bytes = 0;
  plan->to = machine.Classify(to, &to_bytes);
  plan->from = machine.Classify(from, &from_bytes);
  if (bytes > to_bytes || bytes > from_bytes) return cudaErrorInvalidValue;
  if (kind == cudaMemcpyDefault) return cudaSuccess;
  const bool to_device = plan->to == MemoryKind::kDevice;
  const bool from_device = plan->from == MemoryKind::kDevice;
  const bool agrees = (kind == cudaMemcpyHostToHost && !to_device && !from_device) ||
                      (kind == cudaMemcpyHostToDevice && to_device && !from_device) ||
                      (kind == cudaMemcpyDeviceToHost && !to_device && from_device) ||
                      (kind == cudaMemcpyDeviceToDevice && to_device && from_device);
  return agrees ? cudaSuccess : cudaErrorInvalidValue;
}

void Count(Counters& counters, const CopyPlan& plan) {
  if (plan.to == MemoryKind::kPageable || plan.from == MemoryKind::kPageable) {
    ++counters.pageable_copies;
  }
  if (plan.to != MemoryKind::kDevice) {
    counters.copies_to_host += plan.from == MemoryKind::kDevice ? 1 : 0;
  } else if (plan.from == MemoryKind::kDevice) {
    ++counters.copies_on_device;
  } else {
    ++counters.copies_to_device;
  }
}

cudaError_t Copy(Machine& machine, void* to, const void* from, size_t bytes, const CopyPlan& plan,
                 cudaStream_t stream) {
  Count(machine.counters, plan);
  const bool capturing = stream != nullptr && stream->capture != nullptr;
  if (plan.from == MemoryKind::kPageable && plan.to == MemoryKind::kDevice && !capturing) {
    // The source is read before the call returns.
    auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
    return machine.Queue(stream, [to, staged] { std::memcpy(to, staged->data(), staged->size()); });
  }
  const cudaError_t error =
      machine.Queue(stream, [to, from, bytes] { std::memmove(to, from, bytes); });
  if (error != cudaSuccess || capturing) return error;
  const bool on_host = plan.to != MemoryKind::kDevice && plan.from != MemoryKind::kDevice;
  if (plan.to == MemoryKind::kPageable || on_host) machine.DrainStream(stream);
  return cudaSuccess;
}

}  // namespace

MemoryKind Machine::Classify(const void* pointer, size_t* bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  auto next = allocations.upper_bound(address);
  *bytes = SIZE_MAX;
  if (next == allocations.begin()) return MemoryKind::kPageable;
  const auto& [start, allocation] = *std::prev(next);
  if (address >= start + allocation.bytes) return MemoryKind::kPageable;
  *bytes = start + allocation.bytes - address;
  return allocation.kind;
}

}  // namespace simt

using simt::Machine;
using simt::MemoryKind;
using simt::Report;
using simt::TheMachine;

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
  return simt::Allocate(pointer, bytes, MemoryKind::kDevice);
}
cudaError_t cudaFree(void* pointer) { return simt::Free(pointer, MemoryKind::kDevice, true); }
cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
  return simt::Allocate(pointer, bytes, MemoryKind::kPinned);
}
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned int) {
  return simt::Allocate(pointer, bytes, MemoryKind::kPinned);
}
cudaError_t cudaFreeHost(void* pointer) { return simt::Free(pointer, MemoryKind::kPinned, true); }

cudaError_t cudaHostRegister(void* pointer, size_t bytes, unsigned int) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = simt::Enter(machine); error != cudaSuccess) return Report(error);
  if (pointer == nullptr || bytes == 0) return Report(cudaErrorInvalidValue);
  size_t known = 0;
  if (machine.Classify(pointer, &known) != MemoryKind::kPageable) {
    return Report(cudaErrorHostMemoryAlreadyRegistered);
  }
  ++machine.counters.allocations;
  machine.allocations[reinterpret_cast<uintptr_t>(pointer)] = {bytes, MemoryKind::kPinned, false};
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* pointer) {
  return simt::Free(pointer, MemoryKind::kPinned, false);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned int flags) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = simt::Enter(machine); error != cudaSuccess) return Report(error);
  size_t known = 0;
  if (flags != 0 || machine.Classify(host, &known) != MemoryKind::kPinned) {
    return Report(cudaErrorInvalidValue);
  }
  *device = host;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  *total_bytes = machine.config.memory_bytes;
  *free_bytes = *total_bytes - std::min(*total_bytes, machine.device_bytes);
  return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  size_t bytes = 0;
  void* p = const_cast<void*>(pointer);
  switch (machine.Classify(pointer, &bytes)) {
    case MemoryKind::kPageable:
      *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, p};
      break;
    case MemoryKind::kPinned:
      *attributes = {cudaMemoryTypeHost, 0, p, p};
      break;
    case MemoryKind::kDevice:
      *attributes = {cudaMemoryTypeDevice, 0, p, nullptr};
      break;
  }
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (!machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  simt::CopyPlan plan;
  const cudaError_t error = simt::PlanCopy(machine, to, from, bytes, kind, &plan);
  if (error != cudaSuccess) return Report(error);
  return Report(simt::Copy(machine, to, from, bytes, plan, stream));
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  Machine& machine = TheMachine();
  {
    std::lock_guard lock(machine.mutex);
    if (const cudaError_t error = simt::Enter(machine); error != cudaSuccess) return Report(error);
  }
  // The null stream's work is done when a call returns.
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (!machine.Known(stream)) return Report(cudaErrorInvalidResourceHandle);
  if (bytes == 0) return cudaSuccess;
  size_t present = 0;
  if (machine.Classify(to, &present) == MemoryKind::kPageable || bytes > present) {
    return Report(cudaErrorInvalidValue);
  }
  return Report(machine.Queue(stream, [to, value, bytes] { std::memset(to, value, bytes); }));
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}
