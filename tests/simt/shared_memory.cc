#include "tests/simt/shared_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "simt/machine.h"
#include "tests/simt/sanitizers.h"

namespace simt {
namespace {

constexpr size_t kGuardBytes = 512;
constexpr unsigned char kGuard = 0xa5;
alignas(1024) unsigned char memory[kMaxSharedBytes + kGuardBytes];
size_t current_bytes = 0;  // of the block that runs

}  // namespace

// The bounds of the section of static shared variables (include/simt/device.h), where there is one.
extern "C" {
extern unsigned char __start_simt_shared[] __attribute__((weak));
extern unsigned char __stop_simt_shared[] __attribute__((weak));
}

void FillShared(size_t bytes) {
  current_bytes = bytes;
  if (__start_simt_shared != nullptr) {
    std::fill(__start_simt_shared, __stop_simt_shared, static_cast<unsigned char>(0xff));
  }
#if defined(SIMT_ASAN)
  ASAN_UNPOISON_MEMORY_REGION(memory, sizeof(memory));
#endif
  std::memset(memory, 0xff, bytes);
  std::memset(memory + bytes, kGuard, kGuardBytes);
#if defined(SIMT_ASAN)
  ASAN_POISON_MEMORY_REGION(memory + bytes, sizeof(memory) - bytes);
#endif
}

void CheckSharedGuard(size_t bytes) {
#if defined(SIMT_ASAN)
  static_cast<void>(bytes);  // a write there has ended the process
#else
  const unsigned char* guard = memory + bytes;
  const auto* hit =
      std::find_if(guard, guard + kGuardBytes, [](unsigned char byte) { return byte != kGuard; });
  if (hit != guard + kGuardBytes) {
    detail::Fail("byte %zu of dynamic shared memory was written, which has %zu bytes",
                 static_cast<size_t>(hit - memory), bytes);
  }
#endif
}

const unsigned char* SharedBytes(size_t offset, size_t size, const char* reader) {
  if (offset + size > current_bytes) {
    detail::Fail("%s reads bytes %zu to %zu of dynamic shared memory, which has %zu", reader,
                 offset, offset + size - 1, current_bytes);
  }
  return memory + offset;
}

namespace detail {

unsigned char* DynamicShared() { return memory; }

uint32_t SharedAddress(const void* p) {
  const auto offset = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(memory);
  if (offset > current_bytes) Fail("%p is not an address of dynamic shared memory", p);
  return static_cast<uint32_t>(offset);
}

}  // namespace detail
}  // namespace simt
