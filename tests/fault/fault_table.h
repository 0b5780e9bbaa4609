#pragma once

#include <string>
#include <vector>

#include "engine/handoff/states.h"
#include "tests/fault/fault_schedule.h"

namespace tandem {

inline constexpr Moment kMoments[] = {
    Moment::kAccepted,     Moment::kWaiting,  Moment::kQueued,   Moment::kStreamOpen,
    Moment::kDataFrame,    Moment::kResend,   Moment::kCredit,   Moment::kCommit,
    Moment::kRenew,        Moment::kMoving,   Moment::kLost,     Moment::kAck,
    Moment::kAcknowledged, Moment::kDraining, Moment::kDecoding, Moment::kIdle};

// What the two machines of the request's hand-off can be in at a moment; empty where there is no
// such machine yet.
struct StatesAtMoment {
  std::vector<SendState> sender;
  std::vector<ReceiveState> receiver;
};
StatesAtMoment StatesAt(Moment moment);

// All that is done at a moment, on any setup.
std::vector<FaultRow> RowsAt(Moment moment);

// The line of docs/faults.md: moment, states of both machines, and what is done to whom.
std::string TableLine(Moment moment);

}  // namespace tandem
