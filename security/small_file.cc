#include "security/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/status.h"
#include "base/unique_fd.h"

namespace tandem {
namespace {

// Chains and lists of authorities have some kilobytes.
constexpr size_t kMostFileBytes = 4 << 20;

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat about {};
  if (!file.valid() || fstat(file.get(), &about) != 0) {
    return InvalidArgument("{}", ErrnoMessage(errno));
  }
  if (!S_ISREG(about.st_mode)) return InvalidArgument("it is not a regular file");
  if (static_cast<size_t>(about.st_size) > kMostFileBytes) {
    return InvalidArgument("it has {} bytes; at most {} are read", about.st_size, kMostFileBytes);
  }
  std::string bytes(static_cast<size_t>(about.st_size), '\0');
  size_t count = 0;
  while (count < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + count, bytes.size() - count);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return InvalidArgument("{}", ErrnoMessage(errno));
    if (got == 0) break;
    count += static_cast<size_t>(got);
  }
  bytes.resize(count);
  return bytes;
}

}  // namespace tandem
