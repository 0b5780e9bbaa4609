#include "kvstore/swap.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
int32_t SwapSpace::SlabsFor(int32_t num_blocks) const {
  return (num_blocks + shape_.num_blocks() - 1) / shape_.num_blocks();
}

std::optional<int32_t> SwapSpace::BlocksToSwapOut(std::span<const BlockTable> tables) const {
  const auto count = static_cast<int32_t>(HeldOnlyBy(parts_.pool, tables).size());
  if (SlabsFor(count) > parts_.mover.AvailableSlabs()) return std::nullopt;
  return count;
}

absl::StatusOr<SwapId> SwapSpace::SwapOut(std::vector<BlockTable>& tables) {
  Record record = RecordOf(tables);
  const auto num_moved = static_cast<int32_t>(record.moved.size());
  const int32_t num_slabs = SlabsFor(num_moved);
  record.slabs = parts_.mover.TakeSlabs(num_slabs);
  if (static_cast<int32_t>(record.slabs.size()) < num_slabs) {
    return ResourceExhausted("{} blocks to swap out take {} store blocks, {} are available",
                             num_moved, num_slabs, parts_.mover.AvailableSlabs());
  }
  tables.clear();
  num_slabs_ += num_slabs;
  num_blocks_ += num_moved;
  const SwapId id(++last_id_);
  copies_.emplace(parts_.copier.Post(CopyDirection::kToHost, CopiesOf(record)), id);
  records_.emplace(id, std::move(record));
  return id;
}

// Blocks that will be moved get a pin of kind kCopy; blocks that stay keep a pin of kind kTable.
SwapSpace::Record SwapSpace::RecordOf(std::span<const BlockTable> tables) const {
  absl::flat_hash_map<BlockId, int32_t> places;
  Record record;
  std::vector<const BlockRef*> blocks;
  for (const BlockTable& table : tables) {
    std::vector<int32_t>& shape = record.tables.emplace_back();
    for (int32_t i = 0; i < table.num_blocks(); ++i) {
      const BlockRef& block = table.block(i);
      const auto next = static_cast<int32_t>(blocks.size());
      const auto [place, is_new] = places.try_emplace(block.id(), next);
      if (is_new) blocks.push_back(&block);
      shape.push_back(place->second);
    }
  }
  std::vector<bool> moves(blocks.size(), false);
  for (const BlockId id : HeldOnlyBy(parts_.pool, tables)) {
    record.moved.push_back(places.at(id));
    moves[places.at(id)] = true;
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    record.places.push_back(blocks[i]->Share(moves[i] ? PinKind::kCopy : PinKind::kTable));
  }
  return record;
}

std::vector<SlabCopy> SwapSpace::CopiesOf(const Record& record) const {
  std::vector<SlabCopy> copies;
  for (size_t i = 0; i < record.moved.size(); ++i) {
    const auto index = static_cast<int32_t>(i % shape_.num_blocks());
    if (index == 0) {
      copies.emplace_back().slab = record.slabs[i / shape_.num_blocks()].bytes();
    }
    copies.back().places.push_back({record.places[record.moved[i]].id(), index});
    ++copies.back().num_blocks;
  }
  return copies;
}

int32_t SwapSpace::BlocksToSwapIn(SwapId id) const {
  const auto found = records_.find(id);
  TANDEM_CHECK(found != records_.end(), "no such swapped record");
  return static_cast<int32_t>(found->second.moved.size());
}

absl::Status SwapSpace::SwapIn(SwapId id) {
  Record& record = At(id);
  TANDEM_CHECK(record.state == State::kAway, "swapped in what is not on the host");
  if (!parts_.cache.MakeFree(BlocksToSwapIn(id))) {
    return ResourceExhausted("{} blocks to swap in, {} of {} are available: retry later",
                             BlocksToSwapIn(id), parts_.pool.num_free() + parts_.pool.num_idle(),
                             parts_.pool.num_blocks());
  }
  for (const int32_t place : record.moved) {
    record.places[place] = *parts_.pool.Allocate(PinKind::kCopy);
  }
  record.state = State::kReturning;
  copies_.emplace(parts_.copier.Post(CopyDirection::kToDevice, CopiesOf(record)), id);
  return absl::OkStatus();
}

std::vector<BlockTable> SwapSpace::TakeSwapped(SwapId id) {
  const Record& record = At(id);
  TANDEM_CHECK(record.state == State::kBack, "took what is not back from the host");
  std::vector<BlockTable> tables;
  for (const std::vector<int32_t>& shape : record.tables) {
    std::vector<BlockRef> blocks;
    for (const int32_t place : shape) blocks.push_back(record.places[place].Share());
    tables.push_back(BlockTable::Over(block_tokens_, std::move(blocks)));
  }
  Erase(id);
  return tables;
}

void SwapSpace::DropSwapped(SwapId id) {
  Record& record = At(id);
  if (record.state != State::kLeaving && record.state != State::kReturning) return Erase(id);
  record.dropped = true;
  std::vector<BlockRef> copied(record.places.size());
  for (const int32_t place : record.moved) copied[place] = std::move(record.places[place]);
  record.places = std::move(copied);
}

bool SwapSpace::Finish(const CopyDone& done, std::vector<KvCompletion>& completions) {
  const auto found = copies_.find(done.id);
  if (found == copies_.end()) return false;
  const SwapId id = found->second;
  copies_.erase(found);
  Record& record = At(id);
  const bool was_leaving = record.state == State::kLeaving;
  KvCompletion completion = {
      .kind = was_leaving ? KvCompletion::Kind::kSwapOut : KvCompletion::Kind::kSwapIn,
      .swap = id,
      .blocks = static_cast<int32_t>(record.moved.size()),
      .took = done.took,
      .status = done.FirstError()};
  const bool is_ok = completion.status.ok();
  if (was_leaving || !is_ok) {
    for (const int32_t place : record.moved) record.places[place] = BlockRef();
  }
  record.state = !is_ok ? State::kLost : was_leaving ? State::kAway : State::kBack;
  (was_leaving ? num_swapped_out_ : num_swapped_in_) += is_ok ? completion.blocks : 0;
  if (record.dropped) {
    Erase(id);
  } else {
    completions.push_back(std::move(completion));
  }
  return true;
}

SwapSpace::Record& SwapSpace::At(SwapId id) {
  const auto found = records_.find(id);
  TANDEM_CHECK(found != records_.end(), "no such swapped record");
  return found->second;
}

void SwapSpace::Erase(SwapId id) {
  const Record& record = At(id);
  num_slabs_ -= static_cast<int32_t>(record.slabs.size());
  num_blocks_ -= static_cast<int32_t>(record.moved.size());
  records_.erase(id);
}

absl::Status SwapSpace::CheckInvariants() const {
  int32_t num_slabs = 0;
  int32_t num_blocks = 0;
  size_t under_way = 0;
  for (const auto& [id, record] : records_) {
    num_slabs += static_cast<int32_t>(record.slabs.size());
    num_blocks += static_cast<int32_t>(record.moved.size());
    const bool copying = record.state == State::kLeaving || record.state == State::kReturning;
    under_way += copying ? 1 : 0;
    const bool on_device = copying || record.state == State::kBack;
    for (const int32_t place : record.moved) {
      if (record.places[place].present() == on_device) continue;
      return Internal("swapped record {} is in state {} and its block in place {} is{}", id,
                      static_cast<int>(record.state), place, on_device ? " gone" : " kept");
    }
  }
  if (num_slabs != num_slabs_ || num_blocks != num_blocks_ || under_way != copies_.size()) {
    return Internal("swapped: {} slabs, {} blocks, {} copies; counted {}, {}, {}", num_slabs,
                    num_blocks, under_way, num_slabs_, num_blocks_, copies_.size());
  }
  return absl::OkStatus();
}

}  // namespace tandem
