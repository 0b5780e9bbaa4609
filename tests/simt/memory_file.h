#pragma once

#include <cstddef>
#include <memory>

namespace simt {

// Device memory that several processes can map: a file without a name, closed by the last of its
// holders. Files that are none of these are not taken for one.
class MemoryFile {
 public:
  // Of NaN; null where the system gives none.
  static std::shared_ptr<const MemoryFile> New(size_t bytes);
  // What lies behind a descriptor of it, which stays the caller's; null when that is no such file.
  static std::shared_ptr<const MemoryFile> Open(int file);
  // What lies behind descriptor `file` of process `process`.
  static std::shared_ptr<const MemoryFile> OpenOf(int process, int file);

  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile();

  int file() const { return file_; }
  size_t bytes() const { return bytes_; }

 private:
  MemoryFile(int file, size_t bytes) : file_(file), bytes_(bytes) {}

  const int file_;
  const size_t bytes_;
};

}  // namespace simt
