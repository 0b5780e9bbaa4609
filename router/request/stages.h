#pragma once

#include "base/clock.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// When one choice reached each point, on the router's clock.
struct ChoiceTimes {
  TimePoint received;     // the request arrived at the router
  TimePoint first_token;  // arrived at the router
  TimePoint last_token;
  // Time of all attempts together until decode workers answered requests for blocks, and until they
  // had room.
  Duration reserve{};
  Duration admission{};
};

// Splits TTFT into what the worker that prefilled reports, the reservation, and the rest, so that
// the parts add up to it. The residual is 0 when rounding would make it negative.
v1::Stages SplitTtft(const ChoiceTimes& times, const v1::StageTimes& worker);

// Mean time per output token after the first; 0 with fewer than two.
double TimePerOutputTokenMs(const ChoiceTimes& times, int32_t completion_tokens);

}  // namespace tandem
