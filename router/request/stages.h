#pragma once

#include "base/clock.h"
#include "tandem/v1/inference.pb.h"
#include "tandem/v1/worker.pb.h"

namespace tandem {

// Where the time of a request went before the workers that prefilled it began, on the router's
// clock.
struct AttemptTimes {
  // The times of all attempts together until decode workers answered requests for blocks, and until
  // they had room.
  Duration reserve{};
  Duration admission{};
  // The rest of the time from the beginning of the first attempt to that of the latest.
  Duration earlier_attempts{};
};

// When one choice reached each point, on the router's clock.
struct ChoiceTimes {
  TimePoint received;     // the request arrived at the router
  TimePoint first_token;  // arrived at the router
  TimePoint last_token;
};

// Splits TTFT into what the worker that prefilled reports, the reservations, the attempts before,
// and the rest, so that the parts add up to it. The residual is 0 when rounding would make it
// negative.
v1::Stages SplitTtft(const ChoiceTimes& times, const AttemptTimes& attempts,
                     const v1::StageTimes& worker);

// Mean time per output token after the first; 0 with fewer than two.
double TimePerOutputTokenMs(const ChoiceTimes& times, int32_t completion_tokens);

}  // namespace tandem
