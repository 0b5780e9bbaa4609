#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/latency_model/step_model.h"

namespace tandem {

// Sequences that decode on a worker and have the same length. A group of one describes a sequence
// exactly; a larger group comes from a report that has only totals.
struct DecodeGroup {
  int32_t count = 1;
  double context_tokens = 0;    // tokens that the next decode of each sequence reads
  double remaining_tokens = 0;  // tokens that each sequence is expected to decode until it ends
};

// Requests of the same length that wait on a worker, or are being prefilled there.
struct WaitingGroup {
  int32_t count = 1;
  int32_t new_tokens = 0;     // tokens of each request to prefill; 0: its KV comes from elsewhere
  int32_t cached_tokens = 0;  // tokens before new_tokens, with KV in the worker's prefix cache
  double output_tokens = 0;   // expected output of each request, the first token included
  int32_t sequences = 1;      // sequences of each request that decode after its prompt
};

enum class PrefillEnds : uint8_t {
  kInDecode,   // a unified worker: the sequence decodes here
  kInHandOff,  // a prefill worker: its KV moves to a decode worker, and the sequence leaves
};

// The rates at which later requests arrive at a worker. Their prefills slow the decodes of the
// requests before them, and then they decode beside them.
struct ArrivalRates {
  double sequences_per_second = 0;
  double new_tokens_per_second = 0;  // tokens of arriving prompts that are computed on this worker
  double new_pairs_per_second = 0;   // causal (query, key) pairs of these new tokens
  double prompt_tokens = 0;          // mean length of a prompt, its cached part included
  // The mean context at which a sequence begins to decode, weighted by the tokens of the outputs: a
  // sequence with a long output is found among those that decode more often than one with a short
  // output.
  double context_tokens = 0;
  double output_tokens = 0;  // mean output of a sequence
  // For how long requests have arrived at these rates: twice the mean age of those that were
  // counted.
  double lasting_seconds = 0;
};

// What is known of a worker at the moment of a prediction: its step model, its limits, and its
// queues as it reported them together with the requests that were sent there since.
struct WorkerState {
  const StepModel* steps = nullptr;  // not null when a prediction is made
  PrefillEnds prefill_ends = PrefillEnds::kInDecode;
  int32_t max_step_tokens = 512;
  int32_t max_sequences = 64;
  int64_t available_kv_tokens = 0;  // room for new sequences in free and idle blocks
  std::vector<DecodeGroup> decoding;
  std::vector<WaitingGroup> waiting;  // as reported; first come, first served
  std::vector<WaitingGroup> charged;  // requests sent after the report; they stand behind `waiting`
  // The time since the beginning of the step to which `decoding` and `waiting` belong. Other steps,
  // which only computed parts of a prompt, may have followed it. Nothing where it is not known:
  // then they are taken to be the state after the step in progress.
  std::optional<double> elapsed_ms;
  ArrivalRates arrivals;
  // The time of all messages between router and workers that precede a first token of this worker.
  double messages_ms = 0;
  // Arrival rates over a longer time than `arrivals`, to estimate how many requests arrive while
  // the worker is busy with its backlog.
  ArrivalRates usual;
};

}  // namespace tandem
