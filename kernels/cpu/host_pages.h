#pragma once

#include <cstddef>

namespace tandem {

// The bytes to map for a buffer of `bytes`: whole pages, or whole huge pages if it is as large as
// one, so that the last one is huge as well.
size_t MappedBytes(size_t bytes);

// Maps zeros; `mapped_bytes` is a result of MappedBytes, and UnmapPages unmaps them. Null, with
// errno set, on failure. 2 MiB aligned and advised huge when as large. Pages cost memory once they
// are touched.
std::byte* MapPages(size_t mapped_bytes);
// Maps the contents of a file of `mapped_bytes`, as MapPages maps zeros, shared with other
// processes that map it. Its pages are huge only where
// /sys/kernel/mm/transparent_hugepage/shmem_enabled is "advise" or more.
std::byte* MapFilePages(int file, size_t mapped_bytes, bool writable);
void UnmapPages(std::byte* data, size_t mapped_bytes);

}  // namespace tandem
