#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace tandem {

inline constexpr Duration kTrimInterval = std::chrono::seconds(10);

// Gives the heap's free memory back to the system. The C library keeps it for later, so that a
// process to which thousands of clients were connected for a moment would be as large for ever
// after. Thread: one at a time.
class HeapTrimmer {
 public:
  // To be called now and then. Where much more of the heap is resident and free than at the minimum
  // since the last trim, returns it to the system, and returns true. Other threads that allocate
  // wait meanwhile, some milliseconds for 100 MiB.
  bool TrimIfMuchIsFree();

 private:
  // The minimum since the last trim of what FreeResidentKib counts as free. Resident memory that
  // does not belong to the heap counts as well; it is nearly constant.
  std::optional<int64_t> least_free_kib_;
};

}  // namespace tandem
