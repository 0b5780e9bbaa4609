#include "tests/simt/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <string_view>

namespace simt {
namespace {

constexpr const char* kName = "simt-device-memory";

std::string PathOf(const std::string& process, int file) {
  return "/proc/" + process + "/fd/" + std::to_string(file);
}

bool IsDeviceMemory(const std::string& path) {
  char target[64] = {};
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  const std::string wanted = std::string("/memfd:") + kName;
  return length > 0 && std::string_view(target, static_cast<size_t>(length)).starts_with(wanted);
}

size_t SizeOf(int file) {
  struct stat facts = {};
  return fstat(file, &facts) == 0 ? static_cast<size_t>(facts.st_size) : 0;
}

bool FillWithNan(int file, size_t bytes) {
  if (ftruncate(file, static_cast<off_t>(bytes)) != 0) return false;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return false;
  std::memset(memory, 0xff, bytes);
  munmap(memory, bytes);
  return true;
}

}  // namespace

MemoryFile::~MemoryFile() { close(file_); }

std::shared_ptr<const MemoryFile> MemoryFile::New(size_t bytes) {
  const int file = memfd_create(kName, MFD_CLOEXEC);
  if (file < 0) return nullptr;
  std::shared_ptr<const MemoryFile> memory(new MemoryFile(file, bytes));
  return FillWithNan(file, bytes) ? memory : nullptr;
}

std::shared_ptr<const MemoryFile> MemoryFile::Open(int file) {
  if (!IsDeviceMemory(PathOf("self", file))) return nullptr;
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return nullptr;
  return std::shared_ptr<const MemoryFile>(new MemoryFile(own, SizeOf(own)));
}

std::shared_ptr<const MemoryFile> MemoryFile::OpenOf(int process, int file) {
  const std::string path = PathOf(std::to_string(process), file);
  if (!IsDeviceMemory(path)) return nullptr;
  const int own = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own < 0) return nullptr;
  return std::shared_ptr<const MemoryFile>(new MemoryFile(own, SizeOf(own)));
}

}  // namespace simt
