#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// The decode phase of a request: `steps` tokens in each of its sequences, the first of which reads
// `context_tokens` tokens of context.
struct DecodingRequest {
  double context_tokens = 0;
  double steps = 0;
  int32_t sequences = 1;
};

struct DecodeTime {
  double ms = 0;  // the mean over the numbers of requests that may arrive meanwhile
  // The time with the most likely number of arrivals meanwhile. Where that number is 0, the mean
  // still contains a fraction of a prompt, although no request meets a fraction: those that meet a
  // prompt meet all of it.
  double likely_ms = 0;
  double externality_ms = 0;  // time that the request adds to the other sequences, summed over them
};

// Predicts how long a request decodes on a worker, beside its present decodes and those that will
// join: these arrive at the rate of worker.arrivals, stay for as many steps as their outputs have
// tokens, and their prefills share the steps where the worker computes prompts. The steps are
// divided into at most kDecodeSegments segments, within each of which the load is averaged, so that
// the prediction costs about the same for any number of steps.
inline constexpr int kDecodeSegments = 16;
DecodeTime RollDecode(const WorkerState& worker, const std::vector<DecodeGroup>& others,
                      const DecodingRequest& request);

}  // namespace tandem
