#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/engine.h"
#include "engine/output_stream.h"
#include "kvstore/block_table.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// The sending half of a hand-off, as far as one sequence goes.
//   kClosed    -> kStreaming   first chunk: the stream is open, extents are posted
//   kStreaming -> kCommitted   all was posted and the commit queued: the peer's answer is awaited
//   any        -> kEnded       the transport reads none of the blocks any more
struct OutgoingKv {
  enum class State : uint8_t { kClosed, kStreaming, kCommitted, kEnded };

  HandoffTarget target;
  State state = State::kClosed;
  absl::Status error;  // of the first call that failed; acted upon after the step
  uint64_t frames = 0;
  TimePoint first_posted{};
  TimePoint first_token{};  // when it was sampled: what comes after is not hidden by computing
};

// One request inside an engine: its tokens, its blocks, its stream, its times.
// Thread: engine.
struct Sequence {
  Sequence(SequenceId id, EngineRequest request, int32_t block_tokens)
      : id(id), request(std::move(request)), table(block_tokens) {}

  SequenceId id;
  EngineRequest request;
  OutputStream stream;
  BlockTable table;
  std::vector<int32_t> output;  // sampled here, after the first token that came with a hand-off

  std::optional<OutgoingKv> outgoing;     // role prefill
  std::optional<ReservationId> awaiting;  // role decode, until its KV is complete

  TimePoint accepted{};
  TimePoint prefill_began{};
  Duration handoff_time_before{};  // the engine's hand-off time when the prefill began
  StageTimes stages;

  int64_t num_tokens() const { return static_cast<int64_t>(request.prompt.size() + output.size()); }
  int32_t TokenAt(int64_t position) const {
    const size_t i = static_cast<size_t>(position);
    const size_t prompt = request.prompt.size();
    return i < prompt ? request.prompt[i] : output[i - prompt];
  }
  // Why the last token of `output` ends the request; kNone when it does not.
  FinishReason StopReason() const;
};

// Tokens [begin, begin + count) of one sequence, computed in one step: a prefill chunk or, of one
// token, a decode.
struct Chunk {
  Sequence* sequence = nullptr;
  int32_t begin = 0;
  int32_t count = 0;
  bool sampled = false;  // the token after it is wanted

  int32_t end() const { return begin + count; }
};

// What the scheduler is told of `request`. KV is kept of all tokens but the last, which ends the
// request and is never computed with.
SequenceSpec SpecOf(SequenceId id, const EngineRequest& request);

}  // namespace tandem
