#include "model/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/synchronization/mutex.h"
#include "base/status.h"

namespace tandem {
namespace {

absl::Status SystemError(const std::string& path, std::string_view what) {
  const int error = errno;
  if (error == ENOENT) return NotFound("{}: no such file", path);
  return FailedPrecondition("{}: cannot {}: {}", path, what, std::strerror(error));
}

// A table of the mapped files that a signal handler can read: it may neither lock nor allocate.
// When the table is full, further files are not named in its error message.
struct MappedRange {
  std::atomic<const std::byte*> begin = nullptr;  // null: free. Set last, cleared first
  std::atomic<size_t> size = 0;
  std::atomic<const char*> path = nullptr;  // kept until the entry is reused
};
constinit std::array<MappedRange, 1024> mapped_ranges;

void Remember(std::span<const std::byte> bytes, const std::string& path) {
  static absl::Mutex mutex;
  absl::MutexLock lock(&mutex);
  for (MappedRange& range : mapped_ranges) {
    if (range.begin != nullptr) continue;
    free(const_cast<char*>(range.path.exchange(strdup(path.c_str()))));
    range.size = bytes.size();
    range.begin = bytes.data();
    return;
  }
}

void Forget(std::span<const std::byte> bytes) {
  for (MappedRange& range : mapped_ranges) {
    if (range.begin == bytes.data()) range.begin = nullptr;
  }
}

void WriteText(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

// The handler of SIGBUS. Makes only calls that are safe in a signal handler.
void OnReadFault(int signal, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const MappedRange& range : mapped_ranges) {
    const std::byte* begin = range.begin;
    if (begin == nullptr || at < begin || at >= begin + range.size) continue;
    WriteText("error: DATA_LOSS: ");
    WriteText(range.path);
    WriteText(
        ": cannot be read any more: it was cut short while it was loaded, or its disk fails; put "
        "the whole file there and start again\n");
    _exit(1);
  }
  ::signal(signal, SIG_DFL);  // the access fails again once this handler returns
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
      // Asks for 2 MiB pages where the file system supports them: a cold file then loads in half
      // the time, and a warm one takes fewer page faults.
      madvise(data, size, MADV_HUGEPAGE);
      file.bytes_ = {static_cast<const std::byte*>(data), size};
      Remember(file.bytes_, path);
    }
  }
  close(descriptor);
  RETURN_IF_ERROR(status);
  return file;
}

MappedFile::~MappedFile() {
  if (bytes_.empty()) return;
  Forget(bytes_);
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void ExplainReadFaults() {
  struct sigaction action {};
  action.sa_sigaction = &OnReadFault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
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
