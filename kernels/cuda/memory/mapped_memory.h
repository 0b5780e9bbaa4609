#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"

// Device memory by the driver's virtual memory management: it is allocated, then mapped at
// addresses that each process chooses, and named between processes by a file. It lives until the
// last mapping and the last file are gone, whoever has them. In all calls the device must be the
// calling thread's current one.
namespace tandem::cuda {

struct MappedMemory {
  std::byte* data = nullptr;
  size_t mapped_bytes = 0;  // whole granules of the driver
};
struct ExportedMemory {
  MappedMemory memory;
  UniqueFd file;
};

// Allocates, maps and exports memory. FAILED_PRECONDITION where the driver or the device has no
// such memory; RESOURCE_EXHAUSTED where memory runs out.
absl::StatusOr<ExportedMemory> MapNewMemory(int device, size_t bytes);
// Maps the memory behind a file of another process (or this one), for reading only where the driver
// can do that. INVALID_ARGUMENT when the file is none of a memory or its memory has another size,
// FAILED_PRECONDITION when the device cannot reach it.
absl::StatusOr<MappedMemory> MapMemoryOfFile(int device, const UniqueFd& file, size_t bytes);
// Unmaps and frees. Does not wait for the device: work that uses the memory must have run.
void UnmapMemory(const MappedMemory& memory);

}  // namespace tandem::cuda
