#include "kvstore/tier/host_tier.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

HostGroup& HostTier::Add(HostSlab slab, uint64_t chained_hash, int32_t num_blocks) {
  HostGroup& group = groups_.emplace_back();
  group.slab = std::move(slab);
  group.chained_hash = chained_hash;
  group.num_blocks = num_blocks;
  group.nodes.resize(num_blocks, nullptr);
  group.self = std::prev(groups_.end());
  AddReader(group);
  return group;
}

void HostTier::Link(HostGroup& group, int32_t index, PrefixNode* node) {
  TANDEM_CHECK(group.nodes[index] == nullptr, "two nodes in one place of a store block");
  group.nodes[index] = node;
  ++group.num_linked;
  ++num_blocks_;
}

void HostTier::Unlink(HostGroup& group, int32_t index) {
  TANDEM_CHECK(group.nodes[index] != nullptr, "no node in this place of the store block");
  group.nodes[index] = nullptr;
  --group.num_linked;
  --num_blocks_;
  EraseIfUnused(group);
}

void HostTier::AddReader(HostGroup& group) {
  if (group.num_readers++ == 0) ++num_read_;
}

void HostTier::RemoveReader(HostGroup& group) {
  TANDEM_CHECK(group.num_readers > 0, "let go of a store block twice");
  if (--group.num_readers == 0) --num_read_;
  EraseIfUnused(group);
}

void HostTier::EraseIfUnused(HostGroup& group) {
  if (group.num_linked == 0 && group.num_readers == 0) groups_.erase(group.self);
}

void HostTier::Touch(HostGroup& group) { groups_.splice(groups_.end(), groups_, group.self); }

HostGroup* HostTier::Oldest() {
  const auto found = std::ranges::find(groups_, 0, &HostGroup::num_readers);
  return found == groups_.end() ? nullptr : &*found;
}

absl::Status HostTier::CheckInvariants() const {
  int32_t num_blocks = 0;
  int32_t num_read = 0;
  for (const HostGroup& group : groups_) {
    const auto empty = std::ranges::count(group.nodes, nullptr);
    const auto linked = static_cast<int32_t>(group.nodes.size() - empty);
    if (linked != group.num_linked || linked + group.num_readers == 0) {
      return Internal("store block {:016x} has {} nodes, counted {}, and {} readers",
                      group.chained_hash, linked, group.num_linked, group.num_readers);
    }
    num_blocks += linked;
    num_read += group.num_readers > 0 ? 1 : 0;
  }
  if (num_blocks != num_blocks_ || num_read != num_read_) {
    return Internal("the host has {} blocks, counted {}, and {} store blocks are read, counted {}",
                    num_blocks, num_blocks_, num_read, num_read_);
  }
  return absl::OkStatus();
}

}  // namespace tandem
