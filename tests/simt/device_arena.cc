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

// The key that protects the device's memory: each thread says by one instruction whether it may
// touch what has this key. Negative where processor or system have no keys: then the pages are
// protected, and released for all threads while the device works, which takes longer than most of
// its work.
int Key() {
  static const int key =
      std::getenv("SIMT_WITHOUT_KEYS") != nullptr ? -1 : pkey_alloc(0, PKEY_DISABLE_ACCESS);
  return key;
}

int ProtectionOf(DeviceArena::Reach reach) {
  switch (reach) {
    case DeviceArena::Reach::kNothing:
      return PROT_NONE;
    case DeviceArena::Reach::kRead:
      return PROT_READ;
    case DeviceArena::Reach::kReadWrite:
      return PROT_READ | PROT_WRITE;
  }
  std::abort();
}

void Check(bool done, const char* what) {
  if (done) return;
  std::perror(what);
  std::abort();
}

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
  Check(memory != MAP_FAILED, "simt: no addresses for device memory");
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
  Check(mmap(pointer, RoundUp(bytes), PROT_NONE, flags | MAP_FIXED, file, 0) != MAP_FAILED,
        "simt: mmap of device memory");
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
  OnReach(offset);
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

size_t DeviceArena::OffsetOf(void* pointer) const {
  return static_cast<size_t>(static_cast<std::byte*>(pointer) - Base());
}

void DeviceArena::OnReach(size_t offset) {
  if (Key() < 0) {
    if (depth_ > 0) Release();
    return;
  }
  const Block& block = blocks_.at(offset);
  Check(pkey_mprotect(Base() + offset, RoundUp(block.bytes), ProtectionOf(block.reach), Key()) == 0,
        "simt: pkey_mprotect of device memory");
}

void DeviceArena::MapFile(void* pointer, int file, Reach reach) {
  Block& block = blocks_.at(OffsetOf(pointer));
  Replace(pointer, block.bytes, MAP_SHARED, file);
  block.reach = reach;
  block.of_file = true;
  OnReach(OffsetOf(pointer));
}

void DeviceArena::Unmap(void* pointer) {
  Block& block = blocks_.at(OffsetOf(pointer));
  Replace(pointer, block.bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  madvise(pointer, RoundUp(block.bytes), MADV_HUGEPAGE);  // as all around it
  block.reach = Reach::kNothing;
  block.of_file = false;
}

void DeviceArena::SetReach(void* pointer, Reach reach) {
  blocks_.at(OffsetOf(pointer)).reach = reach;
  OnReach(OffsetOf(pointer));
}

void DeviceArena::Free(void* pointer) {
  const auto found = blocks_.find(OffsetOf(pointer));
  if (found->second.of_file) Unmap(pointer);
  const size_t bytes = RoundUp(found->second.bytes);
#if defined(SIMT_ASAN)
  ASAN_POISON_MEMORY_REGION(pointer, bytes);
#endif
  madvise(pointer, bytes, MADV_DONTNEED);
  if (Key() >= 0) Check(mprotect(pointer, bytes, PROT_NONE) == 0, "simt: mprotect of freed memory");
  blocks_.erase(found);
  if (!blocks_.empty()) {
    const auto& [start, block] = *std::prev(blocks_.end());
    used_ = start + RoundUp(block.bytes) + kGap;
  }
}

// What is not for reading and writing is protected again.
void DeviceArena::Release() {
  if (used_ == 0) return;
  bool done = mprotect(Base(), used_, PROT_READ | PROT_WRITE) == 0;
  for (const auto& [start, block] : blocks_) {
    if (block.reach == Reach::kReadWrite) continue;
    done = done && mprotect(Base() + start, RoundUp(block.bytes), ProtectionOf(block.reach)) == 0;
  }
  Check(done, "simt: mprotect of device memory");
}

void DeviceArena::Protect() {
  if (used_ == 0) return;
  Check(mprotect(Base(), used_, PROT_NONE) == 0, "simt: mprotect of device memory");
}

DeviceArena::Access::Access(DeviceArena& arena) : arena_(arena) {
  if (Key() >= 0) {
    rights_before_ = pkey_get(Key());
    pkey_set(Key(), 0);
  } else if (arena_.depth_++ == 0) {
    arena_.Release();
  }
}

DeviceArena::Access::~Access() {
  if (Key() >= 0) {
    pkey_set(Key(), static_cast<unsigned>(rights_before_));
  } else if (--arena_.depth_ == 0) {
    arena_.Protect();
  }
}

}  // namespace simt
