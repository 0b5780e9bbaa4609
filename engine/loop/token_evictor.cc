#include "engine/loop/token_evictor.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

struct Victim {
  int32_t block = 0;  // index in the block table
  TokensOf part = TokensOf::kPrompt;
};

// Picks a block of the prompt to evict. The tokens that attention needs least lie just in front of
// the prompt's most recent ones (SelectTokens). Half of the prompt's share is kept in any case.
std::optional<Victim> OfPrompt(const TokenEviction& eviction, int32_t stored, int32_t held,
                               int32_t block_tokens) {
  const int32_t block = (held - eviction.recent_tokens) / block_tokens - 1;
  const bool ranked = block >= 0 && block * block_tokens >= eviction.sink_tokens;
  if (!ranked || held - block_tokens < stored / 2) return std::nullopt;
  return Victim{.block = block, .part = TokensOf::kPrompt};
}

// Picks the oldest block that holds output alone. The most recent tokens are kept in any case.
std::optional<Victim> OfOutput(const TokenEviction& eviction, int32_t prompt, int32_t held,
                               int32_t block_tokens) {
  const int32_t block = (prompt + block_tokens - 1) / block_tokens;
  if ((block + 1) * block_tokens > held - eviction.recent_tokens) return std::nullopt;
  return Victim{.block = block, .part = TokensOf::kOutput};
}

// Picks the block to evict when a sequence is about to need a new block and holds more tokens than
// its share. None where the whole prompt was kept because a decode worker had made room for it.
std::optional<Victim> NextVictim(const Sequence& sequence, int32_t block_tokens) {
  const TokenEviction* const eviction = sequence.request.eviction();
  const int32_t held = sequence.num_slots();
  if (eviction == nullptr || !eviction->output || held % block_tokens != 0) return std::nullopt;
  const int32_t stored = eviction->StoredTokens(sequence.request.prompt_tokens());
  const bool all_stayed = sequence.request.prompt_tokens() - sequence.evicted_tokens > stored;
  const bool over = held - block_tokens >= eviction->StoredTokens(sequence.num_tokens());
  if (all_stayed || !over) return std::nullopt;
  const int32_t prompt = stored - sequence.late_tokens;
  const std::optional<Victim> victim = OfPrompt(*eviction, stored, prompt, block_tokens);
  return victim ? victim : OfOutput(*eviction, prompt, held, block_tokens);
}

}  // namespace

void TokenEvictor::Prepare(EngineCore& core, Sequence& sequence) {
  if (!sequence.will_evict()) return;
  const KvLayout& layout = core.options.layout;
  PendingEviction& pending = sequence.eviction.emplace(PendingEviction{
      .kept = BlockTable(layout.block_tokens),
      .scores = AttentionScores(layout.num_layers, layout.num_kv_heads, sequence.num_tokens())});
  const absl::Status reserved = core.store.Reserve(pending.kept, sequence.num_kept());
  TANDEM_CHECK(reserved.ok(), "the scheduler planned with blocks that the pool does not have");
}

absl::Status TokenEvictor::Evict(Sequence& sequence) {
  if (sequence.eviction) return EvictPrompt(sequence);
  EvictWhileDecoding(sequence);
  return absl::OkStatus();
}

absl::Status TokenEvictor::EvictPrompt(Sequence& sequence) {
  const int32_t evicted = sequence.num_tokens() - sequence.num_kept();
  RETURN_IF_ERROR(computation_.Evict(sequence));
  sequence.tables.front() = std::move(sequence.eviction->kept);
  sequence.eviction.reset();
  core_.scheduler.Evict(sequence.id, TokensOf::kPrompt, evicted);
  ++evictions_;
  Count(sequence, evicted);
  return sequence.request.outgoing() ? core_.sender.PostKept(sequence) : absl::OkStatus();
}

// Evicts blocks from the middle of a block table, which moves no KV, because attention does not
// depend on the order of the slots. All rows of a beam search have equally many tokens at the same
// places. More than one block is evicted where more output than the sequence's share was computed
// again after a preemption.
void TokenEvictor::EvictWhileDecoding(Sequence& sequence) {
  const int32_t tokens = core_.options.layout.block_tokens;
  while (const std::optional<Victim> victim = NextVictim(sequence, tokens)) {
    for (BlockTable& table : sequence.tables) table.Remove(victim->block);
    if (victim->part == TokensOf::kPrompt) sequence.late_tokens += tokens;
    core_.scheduler.Evict(sequence.id, victim->part, tokens);
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
