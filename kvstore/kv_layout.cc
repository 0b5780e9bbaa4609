#include "kvstore/kv_layout.h"

#include <array>
#include <bit>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "base/hash.h"
#include "base/kv_row.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr int32_t kMaxKvHeads = 1024;
// The limits of the attention kernels.
constexpr int32_t kMaxHeadDim = 256;
constexpr int32_t kHeadDimStep = 8;
constexpr int32_t kMinBlockTokens = 8;

absl::Status CheckRange(std::string_view field, int32_t value, int32_t max) {
  if (value >= 1 && value <= max) return absl::OkStatus();
  return InvalidArgument("KV layout: {}={}: must lie between 1 and {}", field, value, max);
}

}  // namespace

absl::Status KvLayout::Validate() const {
  RETURN_IF_ERROR(CheckRange("num_layers", num_layers, kMaxKvLayers));
  RETURN_IF_ERROR(CheckRange("num_kv_heads", num_kv_heads, kMaxKvHeads));
  if (head_dim < 1 || head_dim > kMaxHeadDim || head_dim % kHeadDimStep != 0) {
    return InvalidArgument("KV layout: head_dim={}: must be a multiple of {} up to {}", head_dim,
                           kHeadDimStep, kMaxHeadDim);
  }
  if (block_tokens < kMinBlockTokens || block_tokens > kMaxBlockTokens ||
      !std::has_single_bit(static_cast<uint32_t>(block_tokens))) {
    return InvalidArgument("KV layout: block_tokens={}: must be a power of two from {} to {}",
                           block_tokens, kMinBlockTokens, kMaxBlockTokens);
  }
  if (!IsKvType(dtype)) {
    return InvalidArgument("KV layout: dtype={}: must be {}", Name(dtype), kKvTypeNames);
  }
  if (IsQuantisedKv(dtype) && head_dim % kKvGroupChannels != 0) {
    return InvalidArgument(
        "KV layout: dtype={} rounds groups of {} channels, and head_dim={} is no multiple of that: "
        "use bf16, f16, f8e4m3 or f32",
        Name(dtype), kKvGroupChannels, head_dim);
  }
  if (ExtentBytes() > kMaxExtentBytes) {
    return InvalidArgument(
        "KV layout: {} bytes per layer of a block, more than the {} that one frame carries: lower "
        "block_tokens={}",
        ExtentBytes(), kMaxExtentBytes, block_tokens);
  }
  return absl::OkStatus();
}

int64_t KvLayout::ExtentBytes() const {
  return int64_t{num_kv_heads} * block_tokens * KvHeadBytes(dtype, head_dim);
}

int64_t KvLayout::BlockBytes() const { return num_layers * ExtentBytes(); }

int64_t KvLayout::BytesPerToken() const { return BlockBytes() / block_tokens; }

int32_t KvLayout::BlocksFor(int64_t num_tokens) const {
  TANDEM_CHECK(num_tokens >= 0, "a negative number of tokens");
  return static_cast<int32_t>((num_tokens + block_tokens - 1) / block_tokens);
}

uint64_t KvLayout::Fingerprint(uint64_t model_fingerprint) const {
  // The version must change whenever the order of the bytes inside an extent changes.
  constexpr uint64_t kLayoutVersion = 1;
  const std::array<uint64_t, 7> fields = {kLayoutVersion,
                                          static_cast<uint64_t>(num_layers),
                                          static_cast<uint64_t>(num_kv_heads),
                                          static_cast<uint64_t>(head_dim),
                                          static_cast<uint64_t>(block_tokens),
                                          static_cast<uint64_t>(dtype),
                                          model_fingerprint};
  return Hash64(std::as_bytes(std::span(fields)));
}

KvPoolView KvLayout::PoolView(std::byte* data, int32_t num_blocks) const {
  return KvPoolView{.data = data,
                    .dtype = dtype,
                    .num_layers = num_layers,
                    .num_blocks = num_blocks,
                    .num_kv_heads = num_kv_heads,
                    .block_tokens = block_tokens,
                    .head_dim = head_dim};
}

}  // namespace tandem
