#include "engine/loop/token_evictor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

// The oldest block of output, where the sequence is about to need a new block and holds more than
// its share of all its tokens. The latest tokens stay in any case, and so does what was kept of the
// prompt. Nothing where the whole prompt stayed because a decode worker had made room for it.
std::optional<int32_t> OutputBlockToEvict(const Sequence& sequence, int32_t block_tokens) {
  const TokenEviction* const eviction = sequence.request.eviction();
  const int32_t held = sequence.num_slots();
  if (eviction == nullptr || !eviction->output || held % block_tokens != 0) return std::nullopt;
  const int32_t prompt = eviction->StoredTokens(sequence.request.prompt_tokens());
  if (sequence.request.prompt_tokens() - sequence.evicted_tokens > prompt) return std::nullopt;
  const int32_t first = (prompt + block_tokens - 1) / block_tokens;
  const int32_t share =
      std::max(eviction->StoredTokens(sequence.num_tokens()), prompt + eviction->recent_tokens);
  const bool over = held - block_tokens >= share;
  const bool old = (first + 1) * block_tokens <= held - eviction->recent_tokens;
  return over && old ? std::optional<int32_t>(first) : std::nullopt;
}

}  // namespace

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
  if (sequence.eviction) return EvictPrompt(sequence);
  EvictOutput(sequence);
  return absl::OkStatus();
}

absl::Status TokenEvictor::EvictPrompt(Sequence& sequence) {
  const int32_t evicted = sequence.num_tokens() - sequence.num_kept();
  RETURN_IF_ERROR(computation_.Evict(sequence));
  sequence.tables.front() = std::move(sequence.eviction->kept);
  sequence.eviction.reset();
  core_.scheduler.Evict(sequence.id, evicted);
  ++evictions_;
  Count(sequence, evicted);
  return sequence.request.outgoing() ? core_.sender.PostKept(sequence) : absl::OkStatus();
}

// Attention does not ask in which order slots lie, so a block that leaves the middle of a table moves
// no KV. All rows of a beam search have the same blocks of output at the same places.
// Several blocks go where more output than its share was computed again after a preemption.
void TokenEvictor::EvictOutput(Sequence& sequence) {
  const int32_t tokens = core_.options.layout.block_tokens;
  while (const std::optional<int32_t> block = OutputBlockToEvict(sequence, tokens)) {
    for (BlockTable& table : sequence.tables) table.Remove(*block);
    core_.scheduler.EvictOutput(sequence.id, tokens);
    Count(sequence, tokens);
  }
}

void TokenEvictor::Count(Sequence& sequence, int32_t tokens) {
  sequence.evicted_tokens += tokens;
  int32_t& most = sequence.request.counts.evicted_tokens;
  most = std::max(most, sequence.evicted_tokens);
  evicted_tokens_ += static_cast<uint64_t>(tokens);
}

void TokenEvictor::AddTo(EngineStats& stats) const {
  stats.evictions = evictions_;
  stats.evicted_tokens = evicted_tokens_;
}

}  // namespace tandem
