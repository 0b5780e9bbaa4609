#include "engine/handoff/states.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "fmt/format.h"

namespace tandem {
namespace {

template <typename State, typename Event, typename Table>
std::optional<State> Next(const Table& table, State state, Event event) {
  const auto place = std::find_if(std::begin(table), std::end(table), [&](const auto& one) {
    return one.from == state && one.event == event;
  });
  if (place == std::end(table)) return std::nullopt;
  return place->to;
}

template <typename State, typename Event>
void GoOn(State& state, Event event) {
  const std::optional<State> next = After(state, event);
  TANDEM_CHECK(next.has_value(),
               fmt::format("a hand-off that is {}: {} cannot come", Name(state), Name(event)));
  state = *next;
}

}  // namespace

std::string_view Name(SendState state) {
  switch (state) {
    case SendState::kClosed:
      return "closed";
    case SendState::kStreaming:
      return "streaming";
    case SendState::kCommitted:
      return "committed";
    case SendState::kLost:
      return "lost";
    case SendState::kEnded:
      return "ended";
  }
  return "?";
}

std::string_view Name(SendEvent event) {
  switch (event) {
    case SendEvent::kOpen:
      return "open";
    case SendEvent::kCommit:
      return "commit";
    case SendEvent::kAcknowledged:
      return "acknowledged";
    case SendEvent::kLose:
      return "lose";
    case SendEvent::kReopen:
      return "reopen";
    case SendEvent::kRefuse:
      return "refuse";
    case SendEvent::kAbort:
      return "abort";
  }
  return "?";
}

std::string_view Name(ReceiveState state) {
  switch (state) {
    case ReceiveState::kWaiting:
      return "waiting";
    case ReceiveState::kAwaited:
      return "awaited";
    case ReceiveState::kComplete:
      return "complete";
    case ReceiveState::kBroken:
      return "broken";
    case ReceiveState::kDraining:
      return "draining";
    case ReceiveState::kGone:
      return "gone";
  }
  return "?";
}

std::string_view Name(ReceiveEvent event) {
  switch (event) {
    case ReceiveEvent::kAdmit:
      return "admit";
    case ReceiveEvent::kReject:
      return "reject";
    case ReceiveEvent::kComplete:
      return "complete";
    case ReceiveEvent::kBreak:
      return "break";
    case ReceiveEvent::kTake:
      return "take";
    case ReceiveEvent::kRelease:
      return "release";
    case ReceiveEvent::kReleaseUnderWrite:
      return "release under write";
    case ReceiveEvent::kDrain:
      return "drain";
    case ReceiveEvent::kShutDown:
      return "shut down";
  }
  return "?";
}

std::optional<SendState> After(SendState state, SendEvent event) {
  return Next(kSendTransitions, state, event);
}

std::optional<ReceiveState> After(ReceiveState state, ReceiveEvent event) {
  return Next(kReceiveTransitions, state, event);
}

void Advance(SendState& state, SendEvent event) { GoOn(state, event); }
void Advance(ReceiveState& state, ReceiveEvent event) { GoOn(state, event); }

}  // namespace tandem
