#include "engine/handoff/landing.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

template <typename... Args>
absl::Status NotReserved(fmt::format_string<Args...> format, Args&&... args) {
  return MakeStatus(absl::StatusCode::kPermissionDenied, format, std::forward<Args>(args)...);
}

}  // namespace

Landing::Landing(LandingPlan landing_plan, const KvLayout& pool_layout, Accepts accepted,
                 TimePoint first_lease_end)
    : plan(std::move(landing_plan)),
      direct(plan.layout == pool_layout),
      accepts(accepted),
      lease_end(first_lease_end) {
  first_block =
      std::min(static_cast<uint32_t>(plan.cached_tokens / plan.layout.block_tokens), num_blocks());
  const size_t per_layer = num_blocks() - first_block;
  extents.assign(per_layer * static_cast<size_t>(plan.layout.num_layers) + 1, Extent::kEmpty);
}

absl::StatusOr<size_t> Landing::IndexOf(const FrameHeader& header) const {
  const auto layers = static_cast<uint32_t>(plan.layout.num_layers);
  if (header.kind != PayloadKind::kExtent && accepts == Accepts::kExtents) {
    return NotReserved("a payload of kind {}: reservation {} was not for encoded KV",
                       static_cast<int>(header.kind), header.stream);
  }
  if (header.kind == PayloadKind::kTables) {
    const size_t lossless = TablesBytes(CodecTables::Use::kLossless);
    const size_t rounding = TablesBytes(CodecTables::Use::kRounding);
    if (header.layer == layers && header.block == 0 &&
        (header.payload_bytes == lossless || header.payload_bytes == rounding)) {
      return extents.size() - 1;
    }
    return NotReserved(
        "tables of {} bytes as layer {}, block {}: expected {} or {} bytes as layer {}",
        header.payload_bytes, header.layer, header.block, lossless, rounding, layers);
  }
  if (header.layer >= layers || header.block >= num_blocks()) {
    return NotReserved("layer {}, block {}: reservation {} has {} layers of {} blocks",
                       header.layer, header.block, header.stream, layers, num_blocks());
  }
  if (header.block < first_block) {
    return NotReserved("block {} of reservation {}: its first {} are cached here", header.block,
                       header.stream, first_block);
  }
  const auto extent_bytes = static_cast<uint64_t>(plan.layout.ExtentBytes());
  if (header.kind == PayloadKind::kExtent ? header.payload_bytes != extent_bytes
                                          : header.payload_bytes > extent_bytes) {
    return NotReserved(
        "a payload of {} bytes, an extent of the layout that was reserved for has {}",
        header.payload_bytes, extent_bytes);
  }
  const size_t per_layer = num_blocks() - first_block;
  return header.layer * per_layer + (header.block - first_block);
}

ExtentShape Landing::ShapeOf(uint32_t block) const {
  const KvLayout& layout = plan.layout;
  const int32_t left = plan.prompt_tokens - static_cast<int32_t>(block) * layout.block_tokens;
  return {layout.dtype, layout.num_kv_heads, layout.head_dim, std::min(layout.block_tokens, left)};
}

size_t Landing::TablesBytes(CodecTables::Use use) const {
  return CodecTables::SerializedBytes(ShapeOf(0), plan.layout.num_layers, use);
}

absl::StatusOr<std::vector<MissingExtent>> Landing::Missing(uint64_t frames) const {
  const auto expected = static_cast<uint64_t>(num_extents());
  const bool with_tables = accepts == Accepts::kExtentsAndFrames && frames == expected + 1;
  if (frames != expected && !with_tables) {
    return DataLoss("committed with {} frames, it has {} extents", frames, expected);
  }
  std::vector<MissingExtent> missing;
  if (with_tables && !has_tables()) {
    missing.push_back({.layer = static_cast<uint32_t>(plan.layout.num_layers), .block = 0});
  }
  if (num_landed_extents() == num_extents()) return missing;
  const uint32_t per_layer = num_blocks() - first_block;
  for (uint32_t index = 0; index + 1 < extents.size(); ++index) {
    if (extents[index] == Extent::kLanded) continue;
    missing.push_back({.layer = index / per_layer, .block = first_block + index % per_layer});
  }
  return missing;
}

uint64_t Landing::LandedBytes() const {
  if (num_extents() == 0) return 0;
  const int64_t bytes = (plan.prompt_tokens - plan.cached_tokens) * plan.layout.BytesPerToken();
  return static_cast<uint64_t>(bytes * (num_landed_extents() + num_verified) / num_extents());
}

}  // namespace tandem
