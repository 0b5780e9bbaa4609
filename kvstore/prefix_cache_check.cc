#include <algorithm>

#include "base/hash.h"
#include "base/status.h"
#include "kvstore/prefix_cache.h"

namespace tandem {

absl::Status PrefixCache::CheckNode(const PrefixNode& node) const {
  const uint64_t hash = Hash64(std::as_bytes(std::span(node.tokens)), node.parent->id.hash);
  if (hash != node.id.hash || node.index != node.parent->index + 1 ||
      !node.parent->children.contains(const_cast<PrefixNode*>(&node))) {
    return Internal("cached block {} of prefix {:016x} does not continue its parent", node.index,
                    node.id.hash);
  }
  const bool is_root_child = node.parent->index < 0;
  if (node.on_device() && (by_block_[node.block.id().value()] != &node ||
                           (!is_root_child && !node.parent->on_device()))) {
    return Internal("block {} is cached twice, or continues what is not on the device",
                    node.block.id());
  }
  if (!node.on_device() && !node.on_host()) {
    return Internal("cached block {} of prefix {:016x} is nowhere", node.index, node.id.hash);
  }
  if (node.on_host() && node.group->nodes[node.group_index] != &node) {
    return Internal("cached block {} of prefix {:016x} is not where the host has it", node.index,
                    node.id.hash);
  }
  const auto is_on_device = [](const PrefixNode* child) { return child->on_device(); };
  const auto is_idle = [this](const PrefixNode* child) { return Idle(*child); };
  const auto idle = std::ranges::count_if(node.children, is_idle);
  if (idle != node.idle_children ||
      std::ranges::count_if(node.children, is_on_device) != node.device_children) {
    return Internal("cached block {} of prefix {:016x} has {} idle children, counted {}",
                    node.index, node.id.hash, idle, node.idle_children);
  }
  const bool evictable = Idle(node) && idle == 0;
  if (evictable != node.rank.has_value() ||
      (evictable && !queue_.contains({*node.rank, const_cast<PrefixNode*>(&node)}))) {
    return Internal("cached block {} of prefix {:016x} may{} be evicted and is{} queued",
                    node.index, node.id.hash, evictable ? "" : " not", node.rank ? "" : " not");
  }
  return absl::OkStatus();
}

absl::Status PrefixCache::CheckInvariants() const {
  int32_t on_device = 0;
  int32_t on_host = 0;
  size_t queued = 0;
  for (const auto& [hash, node] : nodes_) {
    RETURN_IF_ERROR(CheckNode(*node));
    on_device += node->on_device() ? 1 : 0;
    on_host += node->on_host() ? 1 : 0;
    queued += node->rank ? 1 : 0;
  }
  if (on_device != pool_.num_cached() || on_host != tier_.num_blocks() || queued != queue_.size()) {
    return Internal(
        "the cache has {} blocks on the device, {} on the host and {} to evict; "
        "counted {}, {}, {}",
        on_device, on_host, queued, pool_.num_cached(), tier_.num_blocks(), queue_.size());
  }
  if (options_.journal != nullptr && options_.journal->num_cached() != nodes_.size()) {
    return Internal("the journal has {} cached blocks, the cache {}",
                    options_.journal->num_cached(), nodes_.size());
  }
  return absl::OkStatus();
}

}  // namespace tandem
