#include "engine/loop/host_copies.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"

namespace tandem {

void HostCopies::StartProbe(int32_t blocks) {
  const int32_t block_tokens = store_.layout().block_tokens;
  std::vector<BlockTable> tables;
  tables.emplace_back(block_tokens);
  if (!store_.Reserve(tables.front(), blocks * block_tokens).ok()) return;
  const absl::StatusOr<SwapId> swap = store_.SwapOut(tables);
  if (swap.ok()) probe_ = *swap;
}

void HostCopies::ContinueProbe(const KvCompletion& completion) {
  const bool out = completion.kind == KvCompletion::Kind::kSwapOut;
  if (out && completion.status.ok() && store_.SwapIn(*probe_).ok()) return;
  if (!out && completion.status.ok()) {
    store_.TakeSwapped(*probe_);
  } else {
    store_.DropSwapped(*probe_);
  }
  probe_.reset();
}

bool HostCopies::SwapOut(Sequence& sequence) {
  const absl::StatusOr<SwapId> swap = store_.SwapOut(sequence.tables);
  if (!swap.ok()) {
    LogWarn("sequence={} is computed again: {}", sequence.id, swap.status().ToString());
    return false;
  }
  sequence.tables.clear();
  sequence.swap = *swap;
  swaps_.emplace(*swap, &sequence);
  return true;
}

void HostCopies::SwapIn(Sequence& sequence) {
  const absl::Status status = store_.SwapIn(*sequence.swap);
  TANDEM_CHECK(status.ok(), status.ToString());
}

void HostCopies::Drop(Sequence& sequence) {
  if (!sequence.swap) return;
  swaps_.erase(*sequence.swap);
  store_.DropSwapped(*sequence.swap);
}

void HostCopies::Poll() {
  for (const KvCompletion& completion : store_.Poll()) Handle(completion);
}

void HostCopies::Handle(const KvCompletion& completion) {
  const bool out = completion.kind == KvCompletion::Kind::kSwapOut;
  const bool swaps = out || completion.kind == KvCompletion::Kind::kSwapIn;
  if (completion.status.ok()) {
    // Only swaps tell the rate of a copy: blocks of the prefix cache may be encoded when they are
    // copied, swapped sequences never are.
    if (swaps) latency_.ObserveCopy(completion.blocks, completion.took);
    copied_blocks_ += static_cast<uint64_t>(completion.blocks);
    copy_time_ += completion.took;
  }
  if (probe_ && completion.swap == *probe_) return ContinueProbe(completion);
  if (!swaps) return;
  const auto place = swaps_.find(completion.swap);
  if (place == swaps_.end()) return;  // the request of the sequence has ended
  Sequence& sequence = *place->second;
  if (out && completion.status.ok()) return scheduler_.SwappedOut(sequence.id);
  if (completion.status.ok()) {
    sequence.tables = store_.TakeSwapped(completion.swap);
    scheduler_.SwappedIn(sequence.id);
  } else {
    LogError("sequence={} is computed again: {}", sequence.id, completion.status.ToString());
    store_.DropSwapped(completion.swap);
    sequence.ForgetKv();
    scheduler_.SwapFailed(sequence.id);
  }
  sequence.swap.reset();
  swaps_.erase(place);
}

}  // namespace tandem
