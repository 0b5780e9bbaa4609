#include "kvstore/prefix_cache.h"

#include <algorithm>
#include <functional>

#include "base/block_hash.h"
#include "base/check.h"

namespace tandem {
namespace {

constexpr size_t kFirstSweep = 64;

// Returns the node and its descendants, parents first, without the subtrees of children for which
// `member` is false.
template <typename Member>
std::vector<PrefixNode*> Subtree(PrefixNode& node, Member member) {
  std::vector<PrefixNode*> nodes = {&node};
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (PrefixNode* child : nodes[i]->children) {
      if (std::invoke(member, *child)) nodes.push_back(child);
    }
  }
  return nodes;
}

int64_t NumAgreeing(std::span<const int32_t> a, std::span<const int32_t> b) {
  return std::ranges::mismatch(a, b).in1 - a.begin();
}

}  // namespace

PrefixCache::PrefixCache(const Options& options, BlockPool& pool, HostTier& tier)
    : options_(options),
      pool_(pool),
      tier_(tier),
      policy_(NewEvictionPolicy(options.eviction)),
      sweep_at_(kFirstSweep),
      by_block_(pool.num_blocks(), nullptr) {
  pool_.set_observer(this);
}

PrefixCache::~PrefixCache() { pool_.set_observer(nullptr); }

PrefixKey PrefixCache::NewKey(std::string_view salt) {
  auto found = roots_.find(std::string(salt));
  if (found == roots_.end()) {
    SweepRoots();
    const uint64_t hash = PrefixRootHash(options_.fingerprint, salt);
    auto name = std::make_shared<const PrefixRoot>(PrefixRoot{std::string(salt), hash});
    auto node = std::make_unique<PrefixNode>();
    node->id.hash = hash;
    found = roots_.emplace(salt, Root{std::move(name), std::move(node)}).first;
  }
  return PrefixKey(found->second.name, options_.layout.block_tokens);
}

// Removes roots that have neither nodes nor keys. It runs when there are twice as many roots as the
// last sweep left, so that the cost of sweeping is constant per new root.
void PrefixCache::SweepRoots() {
  if (roots_.size() < sweep_at_) return;
  absl::erase_if(roots_, [](const auto& entry) {
    return entry.second.name.use_count() == 1 && entry.second.node->children.empty();
  });
  sweep_at_ = std::max(kFirstSweep, 2 * roots_.size());
}

PrefixNode* PrefixCache::RootOf(const PrefixKey& key) const {
  const auto found = roots_.find(key.root().salt);
  TANDEM_CHECK(found != roots_.end() && found->second.name.get() == &key.root(),
               "the key of another cache");
  return found->second.node.get();
}

PrefixNode* PrefixCache::Child(const PrefixNode& parent, uint64_t hash,
                               std::span<const int32_t> tokens) const {
  const auto found = nodes_.find(hash);
  if (found == nodes_.end()) return nullptr;
  PrefixNode* node = found->second.get();
  return node->parent == &parent && std::ranges::equal(node->tokens, tokens) ? node : nullptr;
}

PrefixPath PrefixCache::Find(const PrefixKey& key, std::span<const int32_t> tokens,
                             int64_t max_tokens) const {
  const auto limit = std::min(static_cast<size_t>(max_tokens), tokens.size());
  const auto size = static_cast<size_t>(options_.layout.block_tokens);
  const std::span<const uint64_t> hashes = key.Extend(tokens);
  const PrefixNode* parent = RootOf(key);
  PrefixPath path = {.end = RootOf(key)};
  for (size_t i = 0; i < hashes.size(); ++i) {
    PrefixNode* node = Child(*parent, hashes[i], tokens.subspan(i * size, size));
    if (node == nullptr) break;
    if (node->restoring && !node->on_device()) {  // reported even if the limit is within this block
      path.restoring = path.host.empty();
      break;
    }
    if ((i + 1) * size > limit) break;
    if (node->on_device()) {
      path.device.push_back(node);
      path.end = node;
    } else {
      path.host.push_back(node);
    }
    parent = node;
  }
  FindTail(tokens.first(limit).subspan(path.device.size() * size), path);
  return path;
}

void PrefixCache::FindTail(std::span<const int32_t> tokens, PrefixPath& path) const {
  const auto& children = path.end->children;
  const auto consider = [&](PrefixNode* child) {
    const int64_t agreeing = child->on_device() ? NumAgreeing(child->tokens, tokens) : 0;
    if (agreeing <= path.tail_tokens) return;
    path.tail = child;
    path.tail_tokens = agreeing;
  };
  const auto at = children.lower_bound(tokens);
  if (at != children.end()) consider(*at);
  if (at != children.begin()) consider(*std::prev(at));
}

PrefixNode* PrefixCache::Find(PrefixNodeId id) const {
  const auto found = nodes_.find(id.hash);
  if (found == nodes_.end() || found->second->id.serial != id.serial) return nullptr;
  return found->second.get();
}

void PrefixCache::Hit(const PrefixPath& path) {
  for (PrefixNode* node : path.device) ++node->use.hits;
  if (path.tail != nullptr) ++path.tail->use.hits;
}

std::pair<PrefixNode*, int32_t> PrefixCache::Resume(PrefixKey& key) const {
  const PrefixKey::Cursor& cursor = key.cursor();
  if (cursor.node != 0) {
    PrefixNode* node = Find({key.hashes()[cursor.blocks - 1], cursor.node});
    if (node != nullptr && node->on_device()) return {node, cursor.blocks};
  }
  return {RootOf(key), 0};
}

void PrefixCache::Insert(PrefixKey& key, std::span<const int32_t> tokens, int64_t num_computed,
                         const BlockTable& table) {
  const int32_t size = options_.layout.block_tokens;
  const auto full = static_cast<int32_t>(num_computed / size);
  if (full <= key.cursor().blocks) return;
  const auto hashes = key.Extend(tokens.first(int64_t{full} * size));
  auto [node, i] = Resume(key);
  for (; i < full; ++i) {
    const auto block = tokens.subspan(int64_t{i} * size, size);
    PrefixNode* child = Child(*node, hashes[i], block);
    if (child == nullptr) child = NewChild(*node, hashes[i], block);
    if (child == nullptr) break;
    if (!child->on_device()) PutOnDevice(*child, table.block(i));
    Touch(*child);
    node = child;
  }
  key.cursor() = {.blocks = full, .node = i == full ? node->id.serial : 0};
}

// Adds a node below `parent`. Returns nullptr when another prefix has the same hash; then the block
// is not cached.
PrefixNode* PrefixCache::NewChild(PrefixNode& parent, uint64_t hash,
                                  std::span<const int32_t> tokens) {
  auto [place, is_new] = nodes_.try_emplace(hash);
  if (!is_new) return nullptr;
  place->second = std::make_unique<PrefixNode>();
  PrefixNode* node = place->second.get();
  node->id = {.hash = hash, .serial = ++last_serial_};
  node->parent = &parent;
  node->index = parent.index + 1;
  node->tokens.assign(tokens.begin(), tokens.end());
  node->use = {.last_used = ++last_use_,
               .hits = 0,
               .first_token = int64_t{node->index} * options_.layout.block_tokens,
               .num_tokens = options_.layout.block_tokens,
               .bytes = options_.layout.BlockBytes()};
  parent.children.insert(node);
  if (options_.journal != nullptr) options_.journal->Add(hash);
  return node;
}

void PrefixCache::PutOnDevice(PrefixNode& node, const BlockRef& block) {
  TANDEM_CHECK(!node.on_device() && (node.parent->on_device() || node.parent->index < 0),
               "what is on the device continues what is not");
  by_block_[block.id().value()] = &node;
  node.block = block.Share(PinKind::kCache);
  node.use.last_used = ++last_use_;
  node.offered = false;
  ++node.parent->device_children;
}

void PrefixCache::Touch(PrefixNode& node) {
  const bool queued = node.rank.has_value();
  if (queued) Dequeue(node);
  node.use.last_used = ++last_use_;
  if (queued) Enqueue(node);
}

bool PrefixCache::Idle(const PrefixNode& node) const {
  return node.on_device() && pool_.pins(node.block.id()).idle();
}

void PrefixCache::Enqueue(PrefixNode& node) {
  node.rank = {.rank = policy_->Rank(node.use), .last_used = node.use.last_used};
  queue_.emplace(*node.rank, &node);
}

void PrefixCache::Dequeue(PrefixNode& node) {
  queue_.erase({*node.rank, &node});
  node.rank.reset();
}

void PrefixCache::EnqueueIfEvictable(PrefixNode& node) {
  if (!node.rank && node.idle_children == 0 && Idle(node)) Enqueue(node);
}

// Dropping the pin of a copy does not count as a use, because a block that was copied to the host
// before its eviction must remain the next to be evicted.
void PrefixCache::BecameIdle(BlockId id, PinKind last) {
  PrefixNode& node = *by_block_[id.value()];
  if (last == PinKind::kTable) {
    node.use.last_used = ++last_use_;
    node.offered = false;
  }
  ++node.parent->idle_children;
  if (node.parent->rank) Dequeue(*node.parent);
  EnqueueIfEvictable(node);
}

void PrefixCache::BecameBusy(BlockId id) {
  PrefixNode& node = *by_block_[id.value()];
  if (node.rank) Dequeue(node);
  --node.parent->idle_children;
  EnqueueIfEvictable(*node.parent);
}

bool PrefixCache::MakeFree(int32_t num_blocks) {
  if (pool_.num_free() + pool_.num_idle() < num_blocks) return false;
  while (pool_.num_free() < num_blocks) EvictNext();
  return true;
}

std::vector<PrefixNode*> PrefixCache::NextEvicted(int32_t count) const {
  std::vector<PrefixNode*> nodes;
  for (auto it = queue_.begin(); it != queue_.end() && count > 0; ++it, --count) {
    nodes.push_back(it->second);
  }
  return nodes;
}

// A sequence may compute a prefix that is cached already, keep its own blocks for it, and add later
// blocks to the cache. So an idle block can be continued by a block in use; evicting the idle one
// removes its descendants from the cache, too.
void PrefixCache::EvictNext() {
  TANDEM_CHECK(!queue_.empty(), "no block is left to evict");
  PrefixNode& node = *queue_.begin()->second;
  policy_->Evicted(node.rank->rank);
  const int32_t on_host_before = tier_.num_blocks();
  const std::vector<PrefixNode*> leaving = Subtree(node, &PrefixNode::on_device);
  for (auto it = leaving.rbegin(); it != leaving.rend(); ++it) {
    TakeOffDevice(**it);
    ++num_evicted_;
    if ((*it)->on_host()) continue;
    ++num_lost_;
    Remove(**it);
  }
  num_lost_ += on_host_before - tier_.num_blocks();
}

void PrefixCache::TakeOffDevice(PrefixNode& node) {
  const BlockId id = node.block.id();
  if (pool_.pins(id).idle()) BecameBusy(id);  // takes it out of the eviction queue
  by_block_[id.value()] = nullptr;
  node.block = BlockRef();
  --node.parent->device_children;
}

void PrefixCache::PutOnHost(PrefixNode& node, HostGroup& group, int32_t index) {
  TakeOffHost(node);
  tier_.Link(group, index, &node);
  node.group = &group;
  node.group_index = index;
}

void PrefixCache::TakeOffHost(PrefixNode& node) {
  if (node.group == nullptr) return;
  tier_.Unlink(*std::exchange(node.group, nullptr), node.group_index);
}

// Removes the deepest node first, because removing a node also removes its descendants.
void PrefixCache::DropHost(HostGroup& group) {
  tier_.AddReader(group);
  for (int32_t i = group.num_blocks - 1; i >= 0; --i) {
    PrefixNode* node = group.nodes[i];
    if (node == nullptr) continue;
    TakeOffHost(*node);
    if (!node->on_device()) Remove(*node);
  }
  tier_.RemoveReader(group);
}

void PrefixCache::Remove(PrefixNode& node) {
  const std::vector<PrefixNode*> subtree = Subtree(node, [](const PrefixNode&) { return true; });
  for (auto it = subtree.rbegin(); it != subtree.rend(); ++it) {
    PrefixNode* gone = *it;
    if (gone->on_device()) TakeOffDevice(*gone);
    TakeOffHost(*gone);
    gone->parent->children.erase(gone);
    if (options_.journal != nullptr) options_.journal->Remove(gone->id.hash);
    nodes_.erase(gone->id.hash);
  }
}

void PrefixCache::Clear() {
  while (pool_.num_idle() > 0) EvictNext();
  while (HostGroup* group = tier_.Oldest()) DropHost(*group);
}

}  // namespace tandem
