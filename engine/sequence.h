#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/beam_search.h"
#include "engine/handoff/incoming_kv.h"
#include "engine/handoff/outgoing_kv.h"
#include "engine/output_stream.h"
#include "engine/pending_eviction.h"
#include "engine/request.h"
#include "kvstore/block_table.h"
#include "kvstore/kv_store.h"
#include "scheduler/scheduler.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// Counts about the KV of a request that are reported at its end.
struct RequestCounts {
  int32_t cached_tokens = 0;   // tokens of the prompt from the prefix cache
  int32_t evicted_tokens = 0;  // tokens whose KV was given up: the most of any of its sequences
  int32_t preemptions = 0;     // preemptions of its sequences
};

// One request inside an engine: its stream, its times, and what its sequences have in common. It
// has one sequence until its prompt is computed. Then the sequence forks: into one sequence per
// choice when tokens are sampled, into several rows of the one sequence in a beam search.
// Thread: engine.
struct RequestState {
  explicit RequestState(EngineRequest request);

  EngineRequest spec;
  OutputStream stream;
  std::vector<SequenceId> sequences;  // those that have not ended
  std::optional<BeamSearch> search;
  // Its part in a hand-off: none in role unified, OutgoingKv in role prefill, IncomingKv in role
  // decode.
  std::variant<std::monostate, OutgoingKv, IncomingKv> handoff;
  std::vector<bool> ended;  // [choice], for sampled choices

  bool prefilled = false;  // the first tokens were sampled, here or elsewhere
  // Whether the request evicts KV again when it is computed again after a preemption. The pool may
  // have room for the KV that a prefill worker left after eviction, but not for evicting it here,
  // beside the prompt.
  bool evicts_again = true;
  TimePoint accepted{};
  TimePoint prefill_began{};
  Duration handoff_time_before{};  // KvSender::time_spent when the prefill began
  StageTimes stages;
  FinishReason last_reason = FinishReason::kNone;  // of the latest choice that ended
  RequestCounts counts;
  // The number of tokens at the front of the prompt whose log-probabilities were emitted or are not
  // wanted. It begins with 1, because the first token has none.
  int32_t scored_tokens = 1;

  int32_t prompt_tokens() const { return static_cast<int32_t>(spec.prompt.size()); }
  // The request's part in sending or receiving KV; null in an engine of another role.
  OutgoingKv* outgoing() { return std::get_if<OutgoingKv>(&handoff); }
  const OutgoingKv* outgoing() const { return std::get_if<OutgoingKv>(&handoff); }
  IncomingKv* incoming() { return std::get_if<IncomingKv>(&handoff); }
  const IncomingKv* incoming() const { return std::get_if<IncomingKv>(&handoff); }
  // Whether the log-probabilities of its prompt are still to be computed.
  bool scores_prompt() const {
    return spec.prompt_logprobs >= 0 && !prefilled && scored_tokens < prompt_tokens();
  }
  // The reservation whose KV the request waits for.
  std::optional<ReservationId> awaiting() const;
  // The dtype in which the prompt's KV was sent, when that is narrower than the pool's.
  std::optional<DType> sent_dtype() const;
  // How KV is evicted at the end of the prompt. Null where none is, for example because the decode
  // worker that the KV goes to has not agreed.
  const TokenEviction* eviction() const;
  bool AllEnded() const;
  // Begins a beam search again, which is possible because none of its tokens were emitted.
  void RestartSearch();
};

// The tokens of one choice or beam: the prompt and its output.
struct Row {
  std::vector<int32_t> tokens;
  double cumulative_logprob = 0;  // sum over the output
};

// The unit that the scheduler runs: rows of equal length that decode together, each with its own
// block table. There is one row, unless a beam search has forked it.
//
// A token's position may differ from its slot: `evicted_tokens` tokens have no KV any more (tokens
// of the prompt, which differ between layers, and the oldest ones of the output). Tokens with KV
// are in the slots from 0 on, in the order of their positions. So the latest tokens are in slot
// `position - evicted_tokens`, in every layer. The scheduler and the block tables count slots;
// tokens, rotations and outputs count positions.
// Thread: engine.
struct Sequence {
  Sequence(SequenceId id, RequestState& request, PrefixKey key)
      : id(id), request(request), key(std::move(key)) {}

  SequenceId id;
  RequestState& request;
  int32_t index = 0;  // index of its choice
  uint64_t seed = 0;
  PrefixKey key;  // prefix key of row 0
  std::vector<Row> rows;
  std::vector<BlockTable> tables;  // tables[i] belongs to rows[i]; none while waiting or swapped
  std::optional<SwapId> swap;      // its KV is on the host, or being copied there or back
  int32_t evicted_tokens = 0;
  int32_t late_tokens = 0;  // of evicted_tokens: those of the prompt, while decoding
  std::optional<PendingEviction> eviction;  // set from its admission until it has evicted

  int32_t num_tokens() const { return static_cast<int32_t>(rows.front().tokens.size()); }
  int32_t num_slots() const { return num_tokens() - evicted_tokens; }
  int32_t num_output() const { return num_tokens() - request.prompt_tokens(); }
  std::span<const int32_t> OutputOf(const Row& row) const {
    return std::span(row.tokens).subspan(request.spec.prompt.size());
  }
  // How many of its tokens may come from the prefix cache. The last known token is computed,
  // because its logits are needed. For the same reason every token is that precedes one to be
  // scored; and so are the tokens whose queries rank tokens for eviction.
  int32_t most_cached_tokens() const;
  // Whether the sequence gives up KV at the end of its prompt, and how many of its known tokens
  // keep their KV then.
  bool will_evict() const { return num_kept() < num_tokens(); }
  int32_t num_kept() const;
  // Why the last token of row 0 ends the choice; kNone when it does not.
  FinishReason StopReason() const;
  // Frees the sequence's blocks: its tokens will be computed again. A beam search will be run
  // again.
  void ForgetKv();
};

// Tokens [begin, begin + count) of one row, computed in one step: a prefill chunk or, of one
// token, a decode.
struct Chunk {
  Sequence* sequence = nullptr;
  int32_t row = 0;
  int32_t begin = 0;
  int32_t count = 0;
  int32_t samples = 0;  // tokens to sample after it: one for each of several choices
  // Tokens of the prompt whose log-probabilities the chunk gives: [scored_begin, +num_scored), each
  // from the logits of the token before it.
  int32_t scored_begin = 0;
  int32_t num_scored = 0;
  bool decode = false;

  int32_t end() const { return begin + count; }
  int32_t slots_begin() const { return begin - sequence->evicted_tokens; }
  int32_t slots_end() const { return end() - sequence->evicted_tokens; }
  const std::vector<int32_t>& tokens() const { return sequence->rows[row].tokens; }
  BlockTable& table() const { return sequence->tables[row]; }
};

// Why `token`, as the choice's output token number `count`, ends a choice of `request`; kNone when
// it does not.
FinishReason StopReasonOf(const EngineRequest& request, int32_t token, int32_t count);

// The key of a tenant's fair share, from the tenant's name.
uint64_t TenantKey(std::string_view tenant);

// The first sequence of `request` as the scheduler sees it. The last token of a request ends it and
// is never computed, so no KV is kept of that token. SpecOfStored is for KV that arrives from
// another worker: `stored_tokens` of the prompt's tokens have KV.
SequenceSpec SpecOf(SequenceId id, const EngineRequest& request);
SequenceSpec SpecOfStored(SequenceId id, const EngineRequest& request, int32_t stored_tokens);
// Turns eviction off for a sequence that fits into the pool, but not together with the blocks that
// eviction copies into: then neither `spec` nor `eviction` asks for it.
void KeepAllWhereEvictionDoesNotFit(const Scheduler& scheduler, SequenceSpec& spec,
                                    std::optional<TokenEviction>& eviction);

}  // namespace tandem
