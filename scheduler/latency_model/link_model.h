#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/latency_model/step_features.h"

namespace tandem {

// One link from a worker to another: moving `bytes` in `operations` frames takes
//   setup + operations * operation + bytes / bandwidth,
// where the bandwidth is the stream's share among the streams that the link carries at that time.
struct LinkModel {
  // Together, `streams` streams reach this multiple of what one stream reaches alone.
  struct Contention {
    int32_t streams = 1;
    double total = 1;
  };

  ModelTime setup{};
  ModelTime operation{};
  double bytes_per_second = 0;         // of one stream alone
  std::vector<Contention> contention;  // ascending; none: the total stays that of one stream

  // INVALID_ARGUMENT names the field that is not finite, negative, 0 or out of order.
  absl::Status Validate() const;

  // What one of `streams` streams gets, in bytes per second; `streams` is at least 1.
  double Share(int32_t streams) const;
  ModelTime Transfer(int64_t bytes, int64_t operations, int32_t streams) const;
};

// What of a transfer remains after the prefill that produces it. Both run in `units` equal parts
// (chunks times layers), and a part is sent once it is computed, so that the transfer ends one part
// after the slower of the two.
ModelTime ExposedTransfer(ModelTime transfer, ModelTime prefill, int32_t units);

}  // namespace tandem
