#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem {

// What a request asks of one worker.
struct RequestPart {
  enum class Kind : uint8_t {
    kUnified,  // prefill and decode
    kPrefill,  // the prompt; its KV then moves to another worker
    kDecode,   // the output, with KV that another worker sends
  };
  Kind kind = Kind::kUnified;
  int32_t sequences = 1;           // choices or beams
  int32_t prompt_tokens = 0;       // with the output that the client has already
  int32_t cached_tokens = 0;       // of the prompt: expected in the worker's prefix cache
  double output_tokens = 1;        // expected of each sequence, the first token included
  int32_t most_output_tokens = 1;  // of each sequence
};

// A RequestPart while it is in flight.
struct PartInFlight : RequestPart {
  enum class Stage : uint8_t {
    kAwaitingRoom,  // of kPrefill: the decode worker has not reserved yet, so it is not sent yet
    kWaiting,       // queued or being prefilled; of kDecode: until its first token
    kMoving,        // of kPrefill: the prompt is computed, its KV is on its way
    kDecoding,      // tokens come
  };
  TimePoint sent;
  Stage stage = Stage::kWaiting;
  int32_t live_sequences = 1;  // sequences that have not ended
  int64_t emitted_tokens = 0;  // of all sequences together
  // The tokens of a waiting prompt that are known to be computed, by steps that also sampled tokens
  // of other requests.
  int32_t computed_tokens = 0;
  uint64_t latest_step = 0;  // the worker's step in which the part's latest tokens were sampled
  int64_t step_tokens = 0;   // of all sequences together, in that step

  // The tokens of a prompt that neither the cache has nor steps have computed.
  int32_t uncomputed_tokens() const;
  // The mean context of the sequences, in tokens.
  double context_tokens() const;
  double remaining_tokens() const;
};

// What a worker has to do. The fields are those of its report (v1::WorkerLoad).
struct WorkerDemand {
  int64_t decoding = 0;  // sequences, also those that wait for their KV
  int64_t waiting = 0;   // sequences whose prompt is not computed
  int64_t waiting_prompt_tokens = 0;
  double decode_context_tokens = 0;
  double expected_decode_tokens = 0;

  static WorkerDemand Of(const PartInFlight& part);
  WorkerDemand& operator+=(const WorkerDemand& other);
  WorkerDemand& operator-=(const WorkerDemand& other);
};

}  // namespace tandem
