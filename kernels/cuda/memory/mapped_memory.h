#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

// Device memory by the driver's virtual memory management: allocated by itself, mapped at addresses
// of each process, and named between processes by a file. It lives until the last mapping and the
// last file are gone, whoever has them. All with the device as the calling thread's current one.
namespace tandem::cuda {

struct MappedMemory {
  std::byte* data = nullptr;
  size_t mapped_bytes = 0;  // whole granules of the driver
};
struct ExportedMemory {
  MappedMemory memory;
  UniqueFd file;
};

// FAILED_PRECONDITION where the driver or the device has no such memory; RESOURCE_EXHAUSTED.
absl::StatusOr<ExportedMemory> MapNewMemory(int device, size_t bytes);
// The memory behind a file of another process (or this one), for reading where the driver can do
// that. INVALID_ARGUMENT when it is no such file or its memory another size, FAILED_PRECONDITION
// when the device cannot reach it.
absl::StatusOr<MappedMemory> MapMemoryOfFile(int device, const UniqueFd& file, size_t bytes);
// Does not wait for the device: work that uses the memory must have run.
void UnmapMemory(const MappedMemory& memory);

}  // namespace tandem::cuda
