#include "kvstore/prefix_mover.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr int32_t kMaxDemotions = 4;
// Blocks that will be evicted next are copied to the host when less than 1 / kLowWaterShare of the
// pool is free.
constexpr int32_t kLowWaterShare = 8;
// The number of blocks, in eviction order, that DemoteAhead considers at a time.
constexpr int32_t kLookAhead = 32;

}  // namespace

void PrefixMover::WriteThrough(const PrefixPath& path) {
  const size_t size = shape_.num_blocks();
  const size_t full = path.device.size() / size * size;
  for (size_t end = size; end <= full; end += size) {
    PrefixNode& node = *path.device[end - 1];
    if (!node.on_host() && node.demotions == 0) Demote(GroupUpTo(node));
  }
  // Copies the deepest store block first, so that it is dropped from the host before its parents.
  for (size_t end = full; end > 0; end -= size) {
    const PrefixNode& node = *path.device[end - 1];
    if (node.on_host()) parts_.tier.Touch(*node.group);
  }
}

void PrefixMover::DemoteAhead() {
  const int32_t low_water = parts_.pool.num_blocks() / kLowWaterShare;
  if (parts_.pool.num_free() >= low_water) return;
  for (PrefixNode* node : parts_.cache.NextEvicted(kLookAhead)) {
    // Blocks pinned by copies are not available to sequences, so copies pin at most as many as
    // should be free, or one store block.
    if (num_demotions_ > 0 && parts_.pool.num_copying() >= low_water) return;
    // Each block is offered once: otherwise blocks would be copied without end to a host that is
    // smaller than the idle blocks.
    const bool is_due = !node->on_host() && node->demotions == 0 && !node->offered;
    if (is_due) Demote(GroupUpTo(*node));
  }
}

std::vector<PrefixNode*> PrefixMover::GroupUpTo(PrefixNode& node) const {
  std::vector<PrefixNode*> nodes(node.index % shape_.num_blocks() + 1);
  PrefixNode* at = &node;
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    *it = at;
    at = at->parent;
  }
  return nodes;
}

void PrefixMover::Demote(const std::vector<PrefixNode*>& nodes) {
  if (num_demotions_ >= kMaxDemotions) return;
  std::vector<HostSlab> slabs = TakeSlabs(1);
  if (slabs.empty()) return;
  // Making room on the host removes no node that is on the device, so the nodes to be copied stay
  // valid.
  GroupMove group;
  SlabCopy copy = {.slab = slabs[0].bytes(),
                   .chained_hash = nodes.back()->id.hash,
                   .num_blocks = static_cast<int32_t>(nodes.size()),
                   .encoded = parts_.copier.encodes(),
                   .places = {}};
  for (PrefixNode* node : nodes) {
    copy.places.push_back({node->block.id(), static_cast<int32_t>(group.nodes.size())});
    group.nodes.push_back(node->id);
    group.blocks.push_back(node->block.Share(PinKind::kCopy));
    ++node->demotions;
    node->offered = true;
  }
  group.slab = std::move(slabs[0]);
  Move move;
  move.groups.push_back(std::move(group));
  const uint64_t id = parts_.copier.Post(CopyDirection::kToHost, {std::move(copy)});
  moves_.emplace(id, std::move(move));
  ++num_demotions_;
}

absl::Status PrefixMover::Restore(const PrefixPath& path) {
  if (path.host.empty()) return NotFound("the host has nothing more of this prefix");
  Move move = {.kind = KvCompletion::Kind::kRestore, .groups = {}, .path = {}};
  for (PrefixNode* node : path.device) move.path.push_back(node->block.Share(PinKind::kCopy));
  const auto num_blocks = static_cast<int32_t>(path.host.size());
  if (!parts_.cache.MakeFree(num_blocks)) {
    return ResourceExhausted(
        "{} blocks come back from the host, {} of {} are available: retry later", num_blocks,
        parts_.pool.num_free() + parts_.pool.num_idle(), parts_.pool.num_blocks());
  }
  std::vector<SlabCopy> copies;
  for (PrefixNode* node : path.host) {
    if (move.groups.empty() || move.groups.back().group != node->group) {
      parts_.tier.AddReader(*node->group);
      move.groups.emplace_back().group = node->group;
      copies.push_back({.slab = node->group->slab.bytes(),
                        .chained_hash = node->group->chained_hash,
                        .num_blocks = node->group->num_blocks,
                        .encoded = parts_.copier.encodes(),
                        .places = {}});
    }
    GroupMove& group = move.groups.back();
    group.nodes.push_back(node->id);
    group.blocks.push_back(*parts_.pool.Allocate(PinKind::kCopy));
    copies.back().places.push_back({group.blocks.back().id(), node->group_index});
    node->restoring = true;
  }
  for (auto group = move.groups.rbegin(); group != move.groups.rend(); ++group) {
    parts_.tier.Touch(*group->group);
  }
  const uint64_t id = parts_.copier.Post(CopyDirection::kToDevice, std::move(copies));
  moves_.emplace(id, std::move(move));
  return absl::OkStatus();
}

std::optional<KvCompletion> PrefixMover::Finish(const CopyDone& done) {
  const auto found = moves_.find(done.id);
  if (found == moves_.end()) return std::nullopt;
  Move move = std::move(found->second);
  moves_.erase(found);
  KvCompletion completion = {.kind = move.kind, .took = done.took, .status = done.FirstError()};
  if (move.kind == KvCompletion::Kind::kDemote) {
    completion.blocks = static_cast<int32_t>(move.groups[0].blocks.size());
    FinishDemotion(move, done);
  } else {
    completion.blocks = FinishRestore(move, done);
  }
  return completion;
}

void PrefixMover::FinishDemotion(Move& move, const CopyDone& done) {
  --num_demotions_;
  GroupMove& moved = move.groups[0];
  const auto num_blocks = static_cast<int32_t>(moved.nodes.size());
  HostGroup* group = nullptr;
  if (done.statuses[0].ok()) {
    group = &parts_.tier.Add(std::move(moved.slab), moved.nodes.back().hash, num_blocks);
    num_demoted_ += num_blocks;
  }
  for (int32_t i = 0; i < num_blocks; ++i) {
    PrefixNode* node = parts_.cache.Find(moved.nodes[i]);
    if (node == nullptr) continue;  // was removed from the cache meanwhile
    --node->demotions;
    if (group != nullptr) parts_.cache.PutOnHost(*node, *group, i);
  }
  if (group != nullptr) parts_.tier.RemoveReader(*group);
}

int32_t PrefixMover::FinishRestore(Move& move, const CopyDone& done) {
  int32_t restored = 0;
  for (size_t i = 0; i < move.groups.size(); ++i) {
    GroupMove& group = move.groups[i];
    for (const PrefixNodeId& id : group.nodes) {
      PrefixNode* node = parts_.cache.Find(id);
      if (node != nullptr) node->restoring = false;
    }
    if (done.statuses[i].ok()) {
      restored += PutBack(group);
    } else {
      parts_.cache.DropHost(*group.group);
    }
    parts_.tier.RemoveReader(*group.group);
  }
  num_restored_ += restored;
  return restored;
}

// Blocks that continue a damaged store block of the same copy are not restored.
int32_t PrefixMover::PutBack(const GroupMove& group) {
  int32_t restored = 0;
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    PrefixNode* node = parts_.cache.Find(group.nodes[i]);
    if (node == nullptr || node->on_device()) continue;
    if (node->parent->index >= 0 && !node->parent->on_device()) continue;
    parts_.cache.PutOnDevice(*node, group.blocks[i]);
    ++restored;
  }
  return restored;
}

int32_t PrefixMover::AvailableSlabs() const {
  return parts_.host_pool.num_free() + parts_.tier.num_unread();
}

std::vector<HostSlab> PrefixMover::TakeSlabs(int32_t count) {
  std::vector<HostSlab> slabs;
  if (AvailableSlabs() < count) return slabs;
  const int32_t before = parts_.tier.num_blocks();
  while (parts_.host_pool.num_free() < count) parts_.cache.DropHost(*parts_.tier.Oldest());
  num_dropped_ += before - parts_.tier.num_blocks();
  for (int32_t i = 0; i < count; ++i) slabs.push_back(*parts_.host_pool.Take());
  return slabs;
}

absl::Status PrefixMover::CheckInvariants() const {
  int32_t num_demotions = 0;
  for (const auto& [id, move] : moves_) {
    const bool is_demotion = move.kind == KvCompletion::Kind::kDemote;
    num_demotions += is_demotion ? 1 : 0;
    for (const GroupMove& group : move.groups) {
      for (size_t i = 0; i < group.nodes.size(); ++i) {
        const PrefixNode* node = parts_.cache.Find(group.nodes[i]);
        if (parts_.pool.pins(group.blocks[i].id()).copies == 0 ||
            (node != nullptr && !(is_demotion ? node->demotions > 0 : node->restoring))) {
          return Internal("block {} is copied but not pinned, or unknown to the cache",
                          group.blocks[i].id());
        }
      }
    }
  }
  if (num_demotions != num_demotions_) {
    return Internal("{} store blocks go to the host, counted {}", num_demotions, num_demotions_);
  }
  return absl::OkStatus();
}

}  // namespace tandem
