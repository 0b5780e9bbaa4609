#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/latency_model/step_model.h"

namespace tandem {

// Sequences that decode on a worker and are alike. A group of one describes a sequence exactly; a
// larger group is what is left of a report that only has totals.
struct DecodeGroup {
  int32_t count = 1;
  double context_tokens = 0;    // that the next decode of each reads
  double remaining_tokens = 0;  // that each is expected to decode until it ends
};

// Requests that wait on a worker, or are being prefilled there, and are alike.
struct WaitingGroup {
  int32_t count = 1;
  int32_t new_tokens = 0;     // of each, to be prefilled; 0: its KV comes from elsewhere
  int32_t cached_tokens = 0;  // before these, with KV in the worker's prefix cache
  double output_tokens = 0;   // that each is expected to have, the first included
  int32_t sequences = 1;      // that decode after each prompt
};

enum class PrefillEnds : uint8_t {
  kInDecode,   // a unified worker: the sequence decodes here
  kInHandOff,  // a prefill worker: its KV moves, and it leaves
};

// The requests that are yet to come to a worker. Their prefills slow the decodes of those before them,
// and then they decode beside them.
struct ArrivalRates {
  double sequences_per_second = 0;
  double new_tokens_per_second = 0;  // of prompts that are computed here
  double new_pairs_per_second = 0;   // (query, key) pairs of these tokens
  double prompt_tokens = 0;          // mean of a sequence, what is cached of it included
  // When a sequence begins to decode, on average over all tokens of all outputs: a sequence with a long
  // output is found among those that decode more often than one with a short output.
  double context_tokens = 0;
  double output_tokens = 0;  // mean of a sequence
  // For how long they have come like this: twice the mean age of those that were counted.
  double lasting_seconds = 0;
};

// What is known of a worker at the moment of a prediction: its model, its limits, and its queues as
// it reported them together with what was sent there since.
struct WorkerState {
  const StepModel* steps = nullptr;  // never null in a prediction
  PrefillEnds prefill_ends = PrefillEnds::kInDecode;
  int32_t max_step_tokens = 512;
  int32_t max_sequences = 64;
  int64_t available_kv_tokens = 0;  // that new sequences can have: free and idle blocks
  std::vector<DecodeGroup> decoding;
  std::vector<WaitingGroup> waiting;  // first come, first served
  std::vector<WaitingGroup> charged;  // sent after the report; behind `waiting`
  // Where it is known: the time since the step began to which `decoding` and `waiting` belong, which
  // may have been followed by others that only computed parts of a prompt. Otherwise they are taken
  // to be what the step in progress leaves.
  std::optional<double> elapsed_ms;
  ArrivalRates arrivals;
  // The time of all messages between router and workers that come before a first token here.
  double messages_ms = 0;
  // The same over a longer time: how many requests come while the worker is busy with what it has.
  ArrivalRates usual;
};

}  // namespace tandem
