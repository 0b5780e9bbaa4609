#include "tests/simt/device_arena.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "tests/simt/sanitizers.h"

namespace simt {
namespace {

constexpr size_t kReserved = size_t{64} << 30;  // of addresses
constexpr size_t kPage = 4096;
constexpr size_t kGap = kPage;  // between allocations, for AddressSanitizer to watch

size_t RoundUp(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::byte* Base();
struct sigaction handler_before;

// Says what the fault is about; then the fault happens again, to whoever handled it before.
void OnFault(int, siginfo_t* info, void*) {
  const auto* address = static_cast<const std::byte*>(info->si_addr);
  if (address >= Base() && address < Base() + kReserved) {
    constexpr char kMessage[] =
        "simt: the host touches device memory, or the device what it may not\n";
    static_cast<void>(!write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1));
  }
  sigaction(SIGSEGV, &handler_before, nullptr);
}

std::byte* Reserve() {
  void* memory =
      mmap(nullptr, kReserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("simt: no addresses for device memory");
    std::abort();
  }
  // Few large pages are soon protected.
  madvise(memory, kReserved, MADV_HUGEPAGE);
  struct sigaction handler = {};
  handler.sa_sigaction = OnFault;
  handler.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &handler, &handler_before);
  return static_cast<std::byte*>(memory);
}

std::byte* Base() {
  static std::byte* const base = Reserve();
  return base;
}

void Replace(void* pointer, size_t bytes, int flags, int file) {
  if (mmap(pointer, RoundUp(bytes), PROT_NONE, flags | MAP_FIXED, file, 0) == MAP_FAILED) {
    std::perror("simt: mmap of device memory");
    std::abort();
  }
}

}  // namespace

void* DeviceArena::Place(size_t bytes, Reach reach) {
  const size_t wanted = RoundUp(bytes) + kGap;
  size_t offset = 0;
  for (const auto& [start, block] : blocks_) {
    if (start - offset >= wanted) break;
    offset = start + RoundUp(block.bytes) + kGap;
  }
  if (offset + wanted > kReserved) return nullptr;
  blocks_[offset] = {bytes, reach};
  used_ = std::max(used_, offset + wanted);
  if (depth_ > 0) Protect(PROT_READ | PROT_WRITE);
  std::byte* memory = Base() + offset;
#if defined(SIMT_ASAN)
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
  ASAN_POISON_MEMORY_REGION(memory + bytes, wanted - bytes);
#endif
  return memory;
}

void* DeviceArena::Allocate(size_t bytes) {
  void* memory = Place(bytes, Reach::kReadWrite);
  if (memory == nullptr) return nullptr;
  const Access access(*this);
  std::memset(memory, 0xff, bytes);
  return memory;
}

void* DeviceArena::Reserve(size_t bytes) { return Place(bytes, Reach::kNothing); }

DeviceArena::Block& DeviceArena::At(void* pointer) {
  return blocks_.at(static_cast<size_t>(static_cast<std::byte*>(pointer) - Base()));
}

void DeviceArena::MapFile(void* pointer, int file, Reach reach) {
  Block& block = At(pointer);
  Replace(pointer, block.bytes, MAP_SHARED, file);
  block.reach = reach;
  block.of_file = true;
  if (depth_ > 0) Protect(PROT_READ | PROT_WRITE);
}

void DeviceArena::Unmap(void* pointer) {
  Block& block = At(pointer);
  Replace(pointer, block.bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  madvise(pointer, RoundUp(block.bytes), MADV_HUGEPAGE);  // as all around it
  block.reach = Reach::kNothing;
  block.of_file = false;
}

void DeviceArena::SetReach(void* pointer, Reach reach) {
  At(pointer).reach = reach;
  if (depth_ > 0) Protect(PROT_READ | PROT_WRITE);
}

void DeviceArena::Free(void* pointer) {
  if (At(pointer).of_file) Unmap(pointer);
  const auto found = blocks_.find(static_cast<size_t>(static_cast<std::byte*>(pointer) - Base()));
  const size_t bytes = RoundUp(found->second.bytes);
#if defined(SIMT_ASAN)
  ASAN_POISON_MEMORY_REGION(pointer, bytes);
#endif
  madvise(pointer, bytes, MADV_DONTNEED);
  blocks_.erase(found);
  if (!blocks_.empty()) {
    const auto& [start, block] = *std::prev(blocks_.end());
    used_ = start + RoundUp(block.bytes) + kGap;
  }
}

// What is not for reading and writing is protected again.
void DeviceArena::Protect(int protection) {
  if (used_ == 0) return;
  bool done = mprotect(Base(), used_, protection) == 0;
  for (const auto& [start, block] : blocks_) {
    if (protection == PROT_NONE || block.reach == Reach::kReadWrite) continue;
    const int allowed = block.reach == Reach::kRead ? PROT_READ : PROT_NONE;
    done = done && mprotect(Base() + start, RoundUp(block.bytes), allowed) == 0;
  }
  if (!done) {
    std::perror("simt: mprotect of device memory");
    std::abort();
  }
}

DeviceArena::Access::Access(DeviceArena& arena) : arena_(arena) {
  if (arena_.depth_++ == 0) arena_.Protect(PROT_READ | PROT_WRITE);
}

DeviceArena::Access::~Access() {
  if (--arena_.depth_ == 0) arena_.Protect(PROT_NONE);
}

}  // namespace simt
