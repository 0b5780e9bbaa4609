#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// How long the outputs of a simulated model are, by the length of the prompt. A plain value, for
// any thread.
struct OutputLengths {
  struct Quantile {
    double share = 0;    // share of the outputs that are at most this long, in [0, 1]
    int32_t tokens = 1;  // length of the output, the token that ends it included
  };
  struct Bucket {
    int32_t max_prompt_tokens = 0;    // the bucket holds prompts up to this length
    std::vector<Quantile> quantiles;  // from share 0 to share 1; lengths between are interpolated
  };

  // Ascending; the last bucket also holds longer prompts. Empty: an output ends only at its
  // max_tokens.
  std::vector<Bucket> buckets;

  // INVALID_ARGUMENT names what is missing or out of order.
  absl::Status Validate() const;

  // The length of the output that is sampled with `seed`, the same on every worker; none without
  // buckets.
  std::optional<int32_t> LengthOf(uint64_t seed, int32_t prompt_tokens) const;
};

}  // namespace tandem
