#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/latency_model/worker_state.h"

namespace tandem {

// A request that decodes: `steps` tokens in each of its sequences, the first of which reads
// `context_tokens`.
struct DecodingRequest {
  double context_tokens = 0;
  double steps = 0;
  int32_t sequences = 1;
};

struct DecodeTime {
  double ms = 0;  // on average
  // With the most likely number of requests to come. Where most likely none comes, the mean has a share
  // of a prompt: no request meets a share, and those that meet a prompt meet all of it.
  double likely_ms = 0;
  double externality_ms = 0;  // that it adds to the others, summed over all of them
};

// How long the request takes beside the decodes of a worker and those that will join them: they come
// at the rate of the worker's arrivals and stay for as many steps as their outputs have tokens, and
// their prefills share the steps where the worker computes prompts. The steps are taken in at most
// kDecodeSegments parts, within each of which the others are averaged, so that it costs about the same
// however many there are.
inline constexpr int kDecodeSegments = 16;
DecodeTime RollDecode(const WorkerState& worker, const std::vector<DecodeGroup>& others,
                      const DecodingRequest& request);

}  // namespace tandem
