#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/latency_model/step_features.h"

namespace tandem {

// The cost model of a link between two workers: moving `bytes` in `operations` frames takes
//   setup + operations * operation + bytes / bandwidth,
// where the bandwidth is the share of one stream among all concurrent streams on the link.
struct LinkModel {
  // One measurement: `streams` concurrent streams reach together `total` times the throughput of
  // one stream alone.
  struct Contention {
    int32_t streams = 1;
    double total = 1;
  };

  ModelTime setup{};
  ModelTime operation{};
  double bytes_per_second = 0;         // throughput of one stream alone
  std::vector<Contention> contention;  // ascending; none: all streams share bytes_per_second

  // INVALID_ARGUMENT names the field that is not finite, negative, 0 or out of order.
  absl::Status Validate() const;

  // The bytes per second that each of `streams` concurrent streams gets; `streams` is at least 1.
  double Share(int32_t streams) const;
  ModelTime Transfer(int64_t bytes, int64_t operations, int32_t streams) const;
};

// The part of a KV transfer that the prefill which produces the KV does not hide. Both run in
// `units` equal parts (chunks times layers), and a part is sent once it is computed, so that the
// transfer ends one part after the slower of the two.
ModelTime ExposedTransfer(ModelTime transfer, ModelTime prefill, int32_t units);

}  // namespace tandem
