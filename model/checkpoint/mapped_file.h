#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace tandem {

// A whole file, mapped read-only. Move-only. A file that another process cuts short while it is
// mapped ends this process (SIGBUS), as for every program that maps files.
class MappedFile {
 public:
  // NOT_FOUND or FAILED_PRECONDITION with the path and the system's reason.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

bool FileExists(const std::string& path);

// The content of a small file. As MappedFile::Open; INVALID_ARGUMENT when longer than `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace tandem
