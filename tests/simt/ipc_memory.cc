// Tokens of device memory: a token names the process and its descriptor of the memory's file.
#include "tests/simt/ipc_memory.h"

#include <unistd.h>

#include <cstring>
#include <map>

#include "tests/simt/memory_file.h"
#include "tests/simt/runtime.h"

namespace simt {
namespace {

struct Token {
  uint32_t magic;
  int32_t process;
  int32_t file;
};
constexpr uint32_t kMagic = 0x74637069;
static_assert(sizeof(Token) <= sizeof(cudaIpcMemHandle_t));

using Files = std::map<uintptr_t, std::shared_ptr<const MemoryFile>>;

// Guarded by the machine's mutex.
Files& Exported() {
  static Files& files = *new Files;
  return files;
}
Files& Opened() {
  static Files& files = *new Files;
  return files;
}

// Moves an allocation into a file, in its place.
std::shared_ptr<const MemoryFile> MoveIntoFile(Machine& machine, void* pointer, size_t bytes) {
  auto file = MemoryFile::New(bytes);
  if (file == nullptr) return nullptr;
  const DeviceArena::Access access(machine.arena);
  if (pwrite(file->file(), pointer, bytes, 0) != static_cast<ssize_t>(bytes)) return nullptr;
  machine.arena.MapFile(pointer, file->file(), DeviceArena::Reach::kReadWrite);
  return file;
}

}  // namespace

void ForgetToken(const void* pointer) { Exported().erase(reinterpret_cast<uintptr_t>(pointer)); }

}  // namespace simt

using simt::Machine;
using simt::MemoryKind;
using simt::Report;
using simt::TheMachine;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* pointer) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (machine.config.no_ipc) return Report(cudaErrorNotSupported);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const auto found = machine.allocations.find(address);
  if (found == machine.allocations.end() || found->second.kind != MemoryKind::kDevice ||
      !found->second.owned) {
    return Report(cudaErrorInvalidValue);
  }
  auto& file = simt::Exported()[address];
  if (file == nullptr) file = simt::MoveIntoFile(machine, pointer, found->second.bytes);
  if (file == nullptr) return Report(cudaErrorMemoryAllocation);
  const simt::Token token = {simt::kMagic, getpid(), file->file()};
  *handle = {};
  std::memcpy(handle->reserved, &token, sizeof(token));
  return cudaSuccess;
}

// Not the process's own, as on a real device. Once per token here, where a driver counts.
cudaError_t cudaIpcOpenMemHandle(void** pointer, cudaIpcMemHandle_t handle, unsigned int) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  if (const cudaError_t error = machine.Usable(); error != cudaSuccess) return Report(error);
  if (machine.config.no_ipc) return Report(cudaErrorNotSupported);
  if (machine.config.refuse_imports) return Report(cudaErrorMapBufferObjectFailed);
  simt::Token token;
  std::memcpy(&token, handle.reserved, sizeof(token));
  if (token.magic != simt::kMagic) return Report(cudaErrorInvalidValue);
  if (token.process == getpid()) return Report(cudaErrorDeviceUninitialized);
  auto file = simt::MemoryFile::OpenOf(token.process, token.file);
  if (file == nullptr) return Report(cudaErrorInvalidResourceHandle);
  void* const memory = machine.arena.Reserve(file->bytes());
  if (memory == nullptr) return Report(cudaErrorMapBufferObjectFailed);
  machine.arena.MapFile(memory, file->file(), simt::DeviceArena::Reach::kReadWrite);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  machine.allocations[address] = {file->bytes(), MemoryKind::kDevice, false};
  simt::Opened()[address] = std::move(file);
  *pointer = memory;
  return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void* pointer) {
  Machine& machine = TheMachine();
  std::lock_guard lock(machine.mutex);
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  if (simt::Opened().erase(address) == 0) return Report(cudaErrorInvalidValue);
  machine.allocations.erase(address);
  machine.arena.Free(pointer);
  return cudaSuccess;
}
