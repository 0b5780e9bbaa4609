#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tandem {

inline constexpr Duration kTrimInterval = std::chrono::seconds(10);

// Gives the heap's free memory back to the system. The C library keeps it for later, so that a process
// to which thousands of clients were connected for a moment would be as large for ever after.
// Thread: one at a time.
class HeapTrimmer {
 public:
  // Call now and then. Where much more memory of the heap is resident and free than after the last time, returns
  // it to the system; other threads that allocate wait meanwhile, some milliseconds for 100 MiB. Whether it did.
  bool TrimIfMuchIsFree();

 private:
  // What is resident and does not belong to the heap counts as free as well: it is there each time.
  std::optional<int64_t> least_free_kib_;
};

}  // namespace tandem
