#include "transfer/fabric/probe_memory.h"

#include <memory>

#include "base/status.h"

namespace tandem {
namespace {

DeviceBuffer HostMemory(size_t size) {
  auto* const data = new std::byte[size];
  for (size_t i = 0; i < size; ++i) data[i] = static_cast<std::byte>(i * 131 >> 3);
  return DeviceBuffer(data, size, [](std::byte* memory, size_t) { delete[] memory; });
}

}  // namespace

absl::StatusOr<DeviceBuffer> AllocateProbeMemory(Device* device, size_t size, bool shared) {
  DeviceBuffer host = HostMemory(size);
  if (device == nullptr) return host;
  ASSIGN_OR_RETURN(DeviceBuffer memory,
                   shared ? device->AllocateShared(size) : device->Allocate(size));
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device->NewStream());
  RETURN_IF_ERROR(stream->Copy(memory.bytes(), host.bytes()));
  RETURN_IF_ERROR(stream->Synchronize());
  return memory;
}

}  // namespace tandem
