#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace tandem {

// A whole file, mapped read-only. Move-only. Bytes that can no longer be read, because another
// process cut the file short or the disk fails, end this process (ExplainReadFaults).
class MappedFile {
 public:
  // Maps the file. NOT_FOUND or FAILED_PRECONDITION with the path and the system's reason.
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

// From now on a process that cannot read bytes of a mapped file ends with exit status 1 and one
// line on stderr that names the file, in place of a bare SIGBUS. Call it before the first thread
// starts.
void ExplainReadFaults();

bool FileExists(const std::string& path);

// Returns the content of a small file. Errors as MappedFile::Open; INVALID_ARGUMENT above
// `max_bytes`.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes);

}  // namespace tandem
