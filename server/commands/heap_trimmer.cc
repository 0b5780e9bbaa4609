#include "server/commands/heap_trimmer.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace tandem {
namespace {

constexpr int64_t kMuchKib = 64 << 10;

// The size in KiB of the resident anonymous memory that the heap does not use. It is negative where
// the heap has large blocks that were never written to.
int64_t FreeResidentKib() {
  int64_t resident_kib = 0;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) resident_kib = std::stoll(line.substr(line.find(':') + 1));
  }
  const struct mallinfo2 heap = mallinfo2();
  return resident_kib - static_cast<int64_t>((heap.uordblks + heap.hblkhd) >> 10);
}

}  // namespace

bool HeapTrimmer::TrimIfMuchIsFree() {
  const int64_t free_kib = FreeResidentKib();
  if (!least_free_kib_ || free_kib <= *least_free_kib_ + kMuchKib) {
    least_free_kib_ = std::min(free_kib, least_free_kib_.value_or(free_kib));
    return false;
  }
  malloc_trim(0);
  least_free_kib_ = FreeResidentKib();
  return true;
}

}  // namespace tandem
