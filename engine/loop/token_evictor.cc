#include "engine/loop/token_evictor.h"

#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {

void TokenEvictor::Prepare(EngineCore& core, Sequence& sequence) {
  if (!sequence.will_evict()) return;
  const KvLayout& layout = core.options.layout;
  PendingEviction& pending = sequence.eviction.emplace(
      PendingEviction{.kept = BlockTable(layout.block_tokens),
                      .scores = AttentionScores(layout.num_layers, sequence.num_tokens())});
  const absl::Status reserved = core.store.Reserve(pending.kept, sequence.num_kept());
  TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
}

absl::Status TokenEvictor::Evict(Sequence& sequence) {
  if (!sequence.eviction) return absl::OkStatus();
  const int32_t evicted = sequence.num_tokens() - sequence.num_kept();
  RETURN_IF_ERROR(computation_.Evict(sequence));
  sequence.tables.front() = std::move(sequence.eviction->kept);
  sequence.eviction.reset();
  sequence.evicted_tokens = evicted;
  sequence.request.counts.evicted_tokens = evicted;
  core_.scheduler.Evict(sequence.id, evicted);
  ++evictions_;
  evicted_tokens_ += static_cast<uint64_t>(evicted);
  return sequence.request.outgoing() ? core_.sender.PostKept(sequence) : absl::OkStatus();
}

void TokenEvictor::AddTo(EngineStats& stats) const {
  stats.evictions = evictions_;
  stats.evicted_tokens = evicted_tokens_;
}

}  // namespace tandem
