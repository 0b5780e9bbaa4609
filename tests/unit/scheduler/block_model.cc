#include "tests/unit/scheduler/block_model.h"

#include <algorithm>
#include <iterator>

#include "fmt/format.h"

namespace tandem {

BlockModel::BlockModel(int32_t total_blocks, int32_t block_tokens)
    : block_tokens_(block_tokens), holders_(total_blocks), cached_in_(total_blocks) {}

void BlockModel::Know(const SequenceSpec& spec, int32_t group, int32_t tokens) {
  tables_[spec.id] = {.spec = spec,
                      .group = group,
                      .group_tokens = std::min(tokens, spec.prompt_tokens),
                      .known = spec.prompt_tokens};
}

void BlockModel::SetKnown(SequenceId id, int32_t known) { tables_.at(id).known = known; }

void BlockModel::Forget(SequenceId id) {
  GiveBack(id);
  tables_.erase(id);
}

int32_t BlockModel::BlocksAt(const SequenceSpec& spec, int32_t tokens) const {
  if (tokens <= spec.prompt_tokens) return Ceil(tokens);
  const int32_t shared = spec.prompt_tokens / block_tokens_;
  return shared + spec.width * (Ceil(tokens) - shared);
}

int32_t BlockModel::CountBlocks(const Table& table) const {
  auto count = static_cast<int32_t>(table.shared.size());
  for (const auto& tail : table.tails) count += static_cast<int32_t>(tail.size());
  return count;
}

std::vector<BlockModel::Block*> BlockModel::Blocks(Table& table) const {
  std::vector<Block*> blocks;
  for (Block& block : table.shared) blocks.push_back(&block);
  for (auto& tail : table.tails) {
    for (Block& block : tail) blocks.push_back(&block);
  }
  return blocks;
}

int32_t BlockModel::held(SequenceId id) const { return CountBlocks(tables_.at(id)); }

int32_t BlockModel::AvailableBlocks() const {
  return static_cast<int32_t>(std::count(holders_.begin(), holders_.end(), 0));
}

// Whether the block of the next token has other holders, or is in the cache.
bool BlockModel::CopiesLast(const Table& table) const {
  if (table.computed % block_tokens_ == 0) return false;
  if (!table.tails.empty()) {
    return std::any_of(table.tails.begin(), table.tails.end(),
                       [&](const auto& tail) { return holders_[tail.back()] > 1; });
  }
  const Block last = table.shared.back();
  return holders_[last] > 1 || cached_in_[last] != 0;
}

int32_t BlockModel::BlocksToReach(SequenceId id, int32_t end) const {
  Table table = tables_.at(id);
  if (table.whole) end = std::max(end, table.spec.prompt_tokens);
  int32_t idle = 0;
  if (table.shared.empty() && table.tails.empty()) {
    const CachedPrefix prefix = Prefix(id);
    if (prefix.device_tokens > 0) {
      const std::vector<Block>& cached = groups_.at(table.group).device;
      table.shared.assign(cached.begin(), cached.begin() + Ceil(prefix.device_tokens));
      table.computed = prefix.device_tokens;
      idle = static_cast<int32_t>(std::count_if(table.shared.begin(), table.shared.end(),
                                                [&](Block b) { return holders_[b] == 0; }));
    }
  }
  if (end <= table.computed) return idle;
  int32_t copies = 0;
  if (table.tails.empty()) {
    copies = CopiesLast(table) ? 1 : 0;
  } else if (table.computed % block_tokens_ != 0) {
    for (const auto& tail : table.tails) copies += holders_[tail.back()] > 1 ? 1 : 0;
  }
  return idle + copies + std::max(0, BlocksAt(table.spec, end) - CountBlocks(table));
}

int32_t BlockModel::BlocksFreedBy(SequenceId id) const {
  const Table& table = tables_.at(id);
  int32_t count = 0;
  for (Block* block : Blocks(const_cast<Table&>(table))) count += holders_[*block] == 1 ? 1 : 0;
  return count;
}

std::optional<int32_t> BlockModel::BlocksToSwapOut(SequenceId id) const {
  const int32_t blocks = held(id);
  if (blocks > host_blocks_) return std::nullopt;
  return blocks;
}

int32_t BlockModel::BlocksToSwapIn(SequenceId id) const { return tables_.at(id).on_host; }

CachedPrefix BlockModel::Prefix(SequenceId id) const {
  const Table& table = tables_.at(id);
  if (table.group == 0) return {};
  const Group& group = groups_[table.group];
  const int32_t most = std::min(table.group_tokens, table.known - 1);
  const int32_t device = static_cast<int32_t>(group.device.size()) * block_tokens_;
  CachedPrefix prefix;
  prefix.device_tokens = std::min(most, device);
  if (device >= most) return prefix;
  prefix.host_blocks = std::min(group.host, (most - device) / block_tokens_);
  prefix.host_tokens = prefix.host_blocks * block_tokens_;
  prefix.pending = restores_.contains(table.group) ||
                   std::any_of(tables_.begin(), tables_.end(), [&](const auto& entry) {
                     const Table& other = entry.second;
                     return entry.first != id && other.group == table.group &&
                            !other.shared.empty() && other.tails.empty() &&
                            other.computed < other.group_tokens && other.on_host == 0;
                   });
  return prefix;
}

// Evicts the last idle block of a group. Blocks behind it may be held, but are not found any more.
void BlockModel::Evict() {
  for (auto& [number, group] : groups_) {
    const auto last = std::find_if(group.device.rbegin(), group.device.rend(),
                                   [&](Block block) { return holders_[block] == 0; });
    if (last == group.device.rend()) continue;
    const auto first = std::prev(last.base());
    const auto evicted = static_cast<int32_t>(group.device.end() - first);
    for (auto block = first; block != group.device.end(); ++block) cached_in_[*block] = 0;
    group.device.erase(first, group.device.end());
    group.host = demotes_ ? group.host + evicted : 0;
    return;
  }
}

BlockModel::Block BlockModel::Allocate(const char* what) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (size_t block = 0; block < holders_.size(); ++block) {
      if (holders_[block] > 0 || cached_in_[block] != 0) continue;
      holders_[block] = 1;
      return static_cast<Block>(block);
    }
    Evict();
  }
  if (error_.empty()) error_ = fmt::format("{}: no block is available", what);
  return 0;
}

void BlockModel::Drop(Block block) { --holders_[block]; }

void BlockModel::Attach(SequenceId id, int32_t cached_tokens) {
  Table& table = tables_.at(id);
  if (Prefix(id).device_tokens < cached_tokens && error_.empty()) {
    error_ = fmt::format("attach: {} tokens are cached, not {}", Prefix(id).device_tokens,
                         cached_tokens);
    return;
  }
  table.computed = cached_tokens;
  for (int32_t i = 0; i < Ceil(cached_tokens); ++i) {
    table.shared.push_back(groups_[table.group].device[static_cast<size_t>(i)]);
    ++holders_[table.shared.back()];
  }
  const int32_t all = table.whole ? Ceil(table.spec.prompt_tokens) : 0;
  while (static_cast<int32_t>(table.shared.size()) < all) table.shared.push_back(Allocate("take"));
}

// Each row gets its own copy of the blocks behind the full blocks of the prompt.
void BlockModel::SplitRows(Table& table) {
  const auto full = static_cast<size_t>(table.spec.prompt_tokens / block_tokens_);
  table.tails.resize(static_cast<size_t>(table.spec.width));
  if (table.shared.size() > full) {
    table.tails[0].push_back(table.shared.back());
    table.shared.pop_back();
    for (size_t row = 1; row < table.tails.size(); ++row) {
      table.tails[row].push_back(Allocate("split"));
    }
  }
}

void BlockModel::Compute(SequenceId id, int32_t end) {
  Table& table = tables_.at(id);
  const auto unshare = [&](Block& block) {
    if (holders_[block] == 1 && cached_in_[block] == 0) return;
    const Block copy = Allocate("copy");
    Drop(block);
    block = copy;
  };
  if (table.computed % block_tokens_ != 0) {
    if (table.tails.empty()) unshare(table.shared.back());
    for (auto& tail : table.tails) unshare(tail.back());
  }
  const int32_t prompt_end = std::min(end, table.spec.prompt_tokens);
  while (table.tails.empty() && static_cast<int32_t>(table.shared.size()) < Ceil(prompt_end)) {
    table.shared.push_back(Allocate("prefill"));
  }
  if (end > table.spec.prompt_tokens) {
    if (table.tails.empty()) SplitRows(table);
    const int32_t rows_blocks = Ceil(end) - static_cast<int32_t>(table.shared.size());
    for (auto& tail : table.tails) {
      while (static_cast<int32_t>(tail.size()) < rows_blocks) tail.push_back(Allocate("decode"));
    }
  }
  table.computed = end;
  table.known = std::max(table.known, end);
  InsertPrefix(table);
}

void BlockModel::InsertPrefix(const Table& table) {
  if (table.group == 0) return;
  Group& group = groups_[table.group];
  const int32_t full = std::min(table.computed, table.group_tokens) / block_tokens_;
  for (auto i = static_cast<int32_t>(group.device.size()); i < full; ++i) {
    const Block block = table.shared[static_cast<size_t>(i)];
    if (cached_in_[block] != 0) return;
    cached_in_[block] = table.group;
    group.device.push_back(block);
    group.host = std::max(0, group.host - 1);
  }
}

void BlockModel::GiveBack(SequenceId id) {
  Table& table = tables_.at(id);
  if (!table.off_device) {
    for (Block* block : Blocks(table)) Drop(*block);
  }
  table.off_device = false;
  table.shared.clear();
  table.tails.clear();
  table.computed = 0;
  host_blocks_ += table.on_host;
  table.on_host = 0;
}

// The child gets the first row, and the parent keeps one row.
void BlockModel::Fork(SequenceId parent, SequenceId child) {
  Table& from = tables_.at(parent);
  from.spec.width = 1;
  Table to = from;
  to.spec.id = child;
  for (Block* block : Blocks(to)) ++holders_[*block];
  tables_[child] = std::move(to);
}

void BlockModel::TransferTo(SequenceId from, SequenceId to) {
  Table& successor = tables_.at(to);
  Table& before = tables_.at(from);
  std::swap(successor.shared, before.shared);
  std::swap(successor.tails, before.tails);
  successor.computed = before.computed;
  Forget(from);
}

void BlockModel::BeginSwapOut(SequenceId id) {
  Table& table = tables_.at(id);
  table.on_host = CountBlocks(table);
  host_blocks_ -= table.on_host;
}

void BlockModel::EndSwapOut(SequenceId id) {
  Table& table = tables_.at(id);
  for (Block* block : Blocks(table)) Drop(*block);
  table.off_device = true;
}

void BlockModel::BeginSwapIn(SequenceId id) {
  Table& table = tables_.at(id);
  for (Block* block : Blocks(table)) *block = Allocate("swap in");
  host_blocks_ += table.on_host;
  table.on_host = 0;
  table.off_device = false;
}

void BlockModel::BeginRestore(SequenceId id) {
  const CachedPrefix prefix = Prefix(id);
  const int32_t group = tables_.at(id).group;
  std::vector<Block>& blocks = restores_[group];
  // Its own device prefix is not evicted for it.
  for (Block block : groups_[group].device) ++holders_[block];
  while (static_cast<int32_t>(blocks.size()) < prefix.host_blocks) {
    blocks.push_back(Allocate("restore"));
  }
  for (Block block : groups_[group].device) Drop(block);
}

void BlockModel::EndRestores() {
  for (auto& [number, blocks] : restores_) {
    for (Block block : blocks) {
      Drop(block);
      cached_in_[block] = number;
      groups_[number].device.push_back(block);
    }
    groups_[number].host = std::max(0, groups_[number].host - static_cast<int32_t>(blocks.size()));
  }
  restores_.clear();
}

}  // namespace tandem
