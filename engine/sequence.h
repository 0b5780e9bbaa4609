#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "engine/beam_search.h"
#include "engine/handoff/outgoing_kv.h"
#include "engine/output_stream.h"
#include "engine/request.h"
#include "kvstore/block_table.h"
#include "kvstore/kv_store.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// One request inside an engine: its stream, its times, and what its sequences have in common. It
// has one sequence until its prompt is computed. Then that forks: sampling, into one sequence per
// choice; a beam search, into the rows of that one.
// Thread: engine.
struct RequestState {
  explicit RequestState(EngineRequest request);

  EngineRequest spec;
  OutputStream stream;
  std::vector<SequenceId> sequences;  // that have not ended
  std::optional<BeamSearch> search;   // of a beam search

  std::optional<OutgoingKv> outgoing;      // role prefill
  std::optional<ReservationId> awaiting;   // role decode, until its KV is complete
  std::vector<SampledToken> first_tokens;  // role decode
  uint64_t hidden_bytes = 0;               // role decode: KV that had landed when it came
  std::optional<DType> sent_dtype;         // role decode: its KV came in this narrower dtype
  std::vector<bool> ended;                 // of the choices that are sampled

  bool prefilled = false;  // the first tokens were sampled, here or elsewhere
  TimePoint accepted{};
  TimePoint prefill_began{};
  Duration handoff_time_before{};  // the engine's hand-off time when the prefill began
  StageTimes stages;
  FinishReason last_reason = FinishReason::kNone;  // of the latest choice that ended
  int32_t cached_tokens = 0;
  int32_t preemptions = 0;

  int32_t prompt_tokens() const { return static_cast<int32_t>(spec.prompt.size()); }
  bool AllEnded() const;
  // A beam search begins anew: nothing of it was emitted.
  void RestartSearch();
};

// One line of tokens: the prompt and what followed it.
struct Row {
  std::vector<int32_t> tokens;
  double cumulative_logprob = 0;  // of the tokens behind the prompt
};

// What the scheduler runs as one: rows of equal length that decode together, each with a block
// table of its own. One row, unless a beam search has forked it.
// Thread: engine.
struct Sequence {
  Sequence(SequenceId id, RequestState& request, PrefixKey key)
      : id(id), request(request), key(std::move(key)) {}

  SequenceId id;
  RequestState& request;
  int32_t index = 0;  // of the choice
  uint64_t seed = 0;
  PrefixKey key;  // of row 0
  std::vector<Row> rows;
  std::vector<BlockTable> tables;  // tables[i]: of rows[i]; none while waiting or swapped
  std::optional<SwapId> swap;      // its KV is on the host, or on its way

  int32_t num_tokens() const { return static_cast<int32_t>(rows.front().tokens.size()); }
  int32_t num_output() const { return num_tokens() - request.prompt_tokens(); }
  std::span<const int32_t> OutputOf(const Row& row) const {
    return std::span(row.tokens).subspan(request.spec.prompt.size());
  }
  // Why the last token of row 0 ends the choice; kNone when it does not.
  FinishReason StopReason() const;
};

// Tokens [begin, begin + count) of one row, computed in one step: a prefill chunk or, of one
// token, a decode.
struct Chunk {
  Sequence* sequence = nullptr;
  int32_t row = 0;
  int32_t begin = 0;
  int32_t count = 0;
  int32_t samples = 0;  // tokens wanted after it: of several choices, one each
  bool decode = false;

  int32_t end() const { return begin + count; }
  const std::vector<int32_t>& tokens() const { return sequence->rows[row].tokens; }
  BlockTable& table() const { return sequence->tables[row]; }
};

// Whether `token`, as output number `count`, ends a choice of `request`.
FinishReason StopReasonOf(const EngineRequest& request, int32_t token, int32_t count);

// The fair share that a tenant's name stands for.
uint64_t TenantKey(std::string_view tenant);

// What the scheduler is told of the sequence that `request` begins as. KV is kept of all tokens but
// the last, which ends the request and is never computed with.
SequenceSpec SpecOf(SequenceId id, const EngineRequest& request);

}  // namespace tandem
