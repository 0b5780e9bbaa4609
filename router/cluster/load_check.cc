#include "router/cluster/load_check.h"

#include <cstdint>
#include <string_view>

#include "base/status.h"

namespace tandem {
namespace {

// The most sequences or blocks that a report may contain: no worker has so many, and the sum of two
// such values fits in 32 bits.
constexpr int64_t kMostAtOnce = 1'000'000'000;
constexpr int64_t kMostTokens = int64_t{1} << 50;

absl::Status CheckRange(std::string_view name, int64_t value, int64_t most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return InvalidArgument("load.{}={} must be in [0, {}]", name, value, most);
}

}  // namespace

absl::Status CheckLoad(const v1::WorkerLoad& load) {
  constexpr int kMostLinks = 1024;
  constexpr size_t kMostBytes = 256 << 10;  // the router keeps the latest report of each worker
  RETURN_IF_ERROR(CheckRange("links", load.links_size(), kMostLinks));
  if (const size_t bytes = load.ByteSizeLong(); bytes > kMostBytes) {
    return InvalidArgument("load has {} bytes; at most {} are taken", bytes, kMostBytes);
  }
  RETURN_IF_ERROR(CheckRange("running", load.running(), kMostAtOnce));
  RETURN_IF_ERROR(CheckRange("waiting", load.waiting(), kMostAtOnce));
  RETURN_IF_ERROR(CheckRange("total_blocks", load.total_blocks(), kMostAtOnce));
  RETURN_IF_ERROR(CheckRange("free_blocks", load.free_blocks(), kMostAtOnce));
  RETURN_IF_ERROR(CheckRange("block_tokens", load.block_tokens(), kMostAtOnce));
  RETURN_IF_ERROR(CheckRange("kv.idle_blocks", load.kv().idle_blocks(), kMostAtOnce));
  RETURN_IF_ERROR(CheckRange("decode_context_tokens", load.decode_context_tokens(), kMostTokens));
  RETURN_IF_ERROR(CheckRange("expected_decode_tokens", load.expected_decode_tokens(), kMostTokens));
  return CheckRange("waiting_prompt_tokens", load.waiting_prompt_tokens(), kMostTokens);
}

}  // namespace tandem
