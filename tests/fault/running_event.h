#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>

#include "base/clock.h"
#include "tests/fault/fault_fleet.h"
#include "tests/fault/fault_schedule.h"
#include "tests/fault/frame_desk.h"
#include "tests/fault/generate_call.h"

namespace tandem {

struct FaultCase;

// One request under way. Its address is known to the desk while its ticket is there.
struct RunningEvent {
  // Whether the event may end this request by a cancel or an expiry. Companions, which only take
  // room or time, end whole.
  enum class Part : uint8_t { kDisturbed, kCompanion };

  const FaultEvent& event;
  const FaultCase& expected;
  std::mt19937_64 random;
  v1::GenerateRequest request;
  Part part = Part::kDisturbed;
  Duration timeout{};
  Duration pause{};
  FrameDesk::Ticket ticket = 0;
  std::unique_ptr<GenerateCall> call;
  TimePoint sent{};
  std::shared_ptr<const v1::GetStatusResponse> before;  // the status as it was when this was sent
  std::atomic<GenerateCall*> to_cancel = nullptr;
  std::atomic<bool> did = false;
  // Set on the proxy's thread before the desk says that it fired: where that was, and to whom it
  // shall be done; null when it is to be chosen later, or nobody is there.
  size_t proxy = 0;
  uint64_t connection = 0;
  FleetMember* member = nullptr;
  // The one that it was done to, where that was chosen by the status; else null.
  const FleetMember* guessed = nullptr;

  uint64_t Draw(uint64_t least, uint64_t most) { return least + random() % (most - least + 1); }
  bool is(FaultKind kind) const { return event.row.kind == kind; }
  bool is(Moment moment) const { return event.row.moment == moment; }
  bool ended() const { return to_cancel != nullptr && to_cancel.load()->ended(); }
  // What is done while it drains is done to a request that was cancelled before.
  bool MayBeCancelled() const {
    return part == Part::kDisturbed &&
           (is(FaultKind::kCancel) || (is(Moment::kDraining) && !is(FaultKind::kDeadline)));
  }
  bool MayExpire() const { return part == Part::kDisturbed && is(FaultKind::kDeadline); }
};

}  // namespace tandem
