#pragma once

#include <cstddef>

namespace tandem {

// What a buffer of `bytes` is mapped with: whole pages, and whole huge pages where it has as much
// as one, so that the last one is huge as well.
size_t MappedBytes(size_t bytes);

// Zeros for `mapped_bytes` (of MappedBytes), to be unmapped by UnmapPages; null with errno set.
// 2 MiB aligned and advised huge when as large. Pages cost memory once they are touched.
std::byte* MapPages(size_t mapped_bytes);
// Likewise the contents of a file of that size, shared with whoever else maps it. Its pages are huge
// only where /sys/kernel/mm/transparent_hugepage/shmem_enabled is "advise" or more.
std::byte* MapFilePages(int file, size_t mapped_bytes, bool writable);
void UnmapPages(std::byte* data, size_t mapped_bytes);

}  // namespace tandem
