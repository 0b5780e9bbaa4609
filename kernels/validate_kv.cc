#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "fmt/format.h"
#include "kernels/validate.h"
#include "kernels/validate_checks.h"

// Checks of the ops that write, copy and move KV.

namespace tandem::validate {
namespace {

// Checks that no target is written twice or read. Linear in the lists, which are long where a
// context is pruned.
absl::Status CheckTargets(const CopyTokensArgs& a, int64_t num_slots) {
  std::vector<bool> written(static_cast<size_t>(num_slots));
  for (int32_t slot : a.to) {
    if (written[static_cast<size_t>(slot)]) {
      return InvalidArgument("to names slot {} twice, must name each slot once", slot);
    }
    written[static_cast<size_t>(slot)] = true;
  }
  for (size_t i = 0; i < a.from.size(); ++i) {
    if (!written[static_cast<size_t>(a.from[i])]) continue;
    const size_t list = i / a.to.size();
    const auto heads = static_cast<size_t>(a.pool.num_kv_heads);
    return InvalidArgument(
        "from[{}] of KV head {} in layer {} is slot {}, must be none of the slots of to",
        i % a.to.size(), list % heads, list / heads, a.from[i]);
  }
  return absl::OkStatus();
}

// Checks that tokens [first, first + count) lie in a block of `block_tokens`.
absl::Status CheckTokens(std::string_view name, int32_t first, int32_t count,
                         int32_t block_tokens) {
  if (first >= 0 && count > 0 && first <= block_tokens - count) return absl::OkStatus();
  return InvalidArgument("{} is {} and num_tokens {}, must lie in a block of {}", name, first,
                         count, block_tokens);
}

absl::Status CheckRun(const ConvertKvArgs& a, const KvRun& run, size_t src_bytes) {
  if (run.src.size() != src_bytes) {
    return InvalidArgument("src has {} bytes, must be an extent of {}", run.src.size(), src_bytes);
  }
  if (reinterpret_cast<uintptr_t>(run.src.data()) % 16 != 0) {
    return InvalidArgument("src begins at {}, must begin on a multiple of 16 bytes",
                           static_cast<const void*>(run.src.data()));
  }
  RETURN_IF_ERROR(CheckIndex("dst.layer", run.dst.layer, a.pool.num_layers));
  RETURN_IF_ERROR(CheckIndex("dst.block", run.dst.block, a.pool.num_blocks));
  RETURN_IF_ERROR(CheckTokens("src_token", run.src_token, run.num_tokens, a.src_block_tokens));
  RETURN_IF_ERROR(CheckTokens("dst_token", run.dst_token, run.num_tokens, a.pool.block_tokens));
  const std::byte* pool_end = a.pool.Extent(a.pool.num_layers, 0);
  if (run.src.data() < pool_end && a.pool.data < run.src.data() + run.src.size()) {
    return InvalidArgument("src overlaps the pool: must be apart");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Check(const StoreKvArgs& a, ActivationTypeOf activation_type) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  RETURN_IF_ERROR(CheckIndex("layer", a.layer, a.pool.num_layers));
  const auto num_tokens = static_cast<int64_t>(a.slots.size());
  for (const auto& [name, tensor] : {std::pair("k", &a.k), {"v", &a.v}}) {
    RETURN_IF_ERROR(CheckActivation(name, *tensor, activation_type,
                                    {num_tokens, a.pool.num_kv_heads, a.pool.head_dim}));
  }
  if (a.v.dtype != a.k.dtype) {
    return InvalidArgument("v is {}, must be as k, {}", Name(a.v.dtype), Name(a.k.dtype));
  }
  const int64_t num_slots = int64_t{a.pool.num_blocks} * a.pool.block_tokens;
  for (size_t i = 0; i < a.slots.size(); ++i) {
    if (a.slots[i] < -1 || a.slots[i] >= num_slots) {
      return InvalidArgument("slots[{}] is {}, must be -1 or in [0, {})", i, a.slots[i], num_slots);
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const CopyBlocksArgs& a) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  std::vector<int32_t> targets;
  targets.reserve(a.pairs.size());
  for (size_t i = 0; i < a.pairs.size(); ++i) {
    const auto& [from, to] = a.pairs[i];
    RETURN_IF_ERROR(CheckIndex(fmt::format("pairs[{}].from", i), from, a.pool.num_blocks));
    RETURN_IF_ERROR(CheckIndex(fmt::format("pairs[{}].to", i), to, a.pool.num_blocks));
    targets.push_back(to);
  }
  std::sort(targets.begin(), targets.end());
  if (auto twice = std::adjacent_find(targets.begin(), targets.end()); twice != targets.end()) {
    return InvalidArgument("pairs write block {} twice, must write each block once", *twice);
  }
  for (const auto& [from, to] : a.pairs) {
    if (std::binary_search(targets.begin(), targets.end(), from)) {
      return InvalidArgument("pairs read and write block {}, must do one of the two", from);
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const CopyTokensArgs& a) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  constexpr int64_t kMaxSlots = std::numeric_limits<int32_t>::max();
  const int64_t num_slots = int64_t{a.pool.num_blocks} * a.pool.block_tokens;
  if (num_slots > kMaxSlots) {
    return InvalidArgument("pool has {} blocks of {} tokens, must have at most {} slots together",
                           a.pool.num_blocks, a.pool.block_tokens, kMaxSlots);
  }
  const int64_t lists = int64_t{a.pool.num_layers} * a.pool.num_kv_heads;
  if (a.from.size() != a.to.size() * static_cast<size_t>(lists)) {
    return InvalidArgument(
        "from has {} slots, must have the {} of to for each KV head of each layer, {} times",
        a.from.size(), a.to.size(), lists);
  }
  RETURN_IF_ERROR(CheckIds("to", a.to, num_slots));
  RETURN_IF_ERROR(CheckIds("from", a.from, num_slots));
  return CheckTargets(a, num_slots);
}

absl::Status Check(const MoveBlocksArgs& a) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  for (size_t i = 0; i < a.items.size(); ++i) {
    const LayerBlock& item = a.items[i];
    if (item.layer < 0 || item.layer >= a.pool.num_layers || item.block < 0 ||
        item.block >= a.pool.num_blocks) {
      return InvalidArgument("items[{}] is layer {} block {}, must be below {} and {}", i,
                             item.layer, item.block, a.pool.num_layers, a.pool.num_blocks);
    }
  }
  const auto wanted = static_cast<size_t>(a.pool.ExtentBytes()) * a.items.size();
  if (a.staging.size() != wanted) {
    return InvalidArgument("staging has {} bytes, must have the {} of {} items", a.staging.size(),
                           wanted, a.items.size());
  }
  const std::byte* pool_end = a.pool.Extent(a.pool.num_layers, 0);
  if (!a.staging.empty() && a.staging.data() < pool_end &&
      a.pool.data < a.staging.data() + a.staging.size()) {
    return InvalidArgument("staging overlaps the pool: must be apart");
  }
  return absl::OkStatus();
}

absl::Status Check(const ConvertKvArgs& a) {
  RETURN_IF_ERROR(CheckPool(a.pool));
  const KvPoolView source = a.AsSource();
  RETURN_IF_ERROR(Annotate(CheckPool(source), "the layout of the sources"));
  if (!Widens(a.src_dtype, a.pool.dtype) && !Quantises(a.src_dtype, a.pool.dtype)) {
    return InvalidArgument(
        "src_dtype is {}, must be {}, a type of which each value is one of {}, or one that is "
        "rounded "
        "to it",
        Name(a.src_dtype), Name(a.pool.dtype), Name(a.pool.dtype));
  }
  if (a.pool.k_scale != 1 || a.pool.v_scale != 1) {
    return InvalidArgument("pool has scales {} and {}, must be 1", a.pool.k_scale, a.pool.v_scale);
  }
  const auto src_bytes = static_cast<size_t>(source.ExtentBytes());
  for (size_t i = 0; i < a.runs.size(); ++i) {
    RETURN_IF_ERROR(Annotate(CheckRun(a, a.runs[i], src_bytes), fmt::format("runs[{}]", i)));
  }
  return absl::OkStatus();
}

}  // namespace tandem::validate
