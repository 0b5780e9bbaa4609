#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

// The two state machines of a hand-off, as tables. docs/hand_off.md shows the same tables with what
// each event does; a test compares the two. Every change of state goes through Advance.

namespace tandem {

// The sending half: the states and events of one request at the prefill worker.
enum class SendState : uint8_t {
  kClosed,     // no stream yet
  kStreaming,  // the stream is open: extents are posted as they are computed
  kCommitted,  // all KV was posted, and the peer's answer is awaited
  kLost,       // the stream was lost; it is opened again after a pause
  kEnded,      // the transport reads none of the blocks any more
};
enum class SendEvent : uint8_t {
  kOpen,          // the request arrived
  kCommit,        // the prompt is completely computed
  kAcknowledged,  // the peer has all KV
  kLose,          // the stream ended, and may be opened again
  kReopen,        // the pause after a loss is over
  kRefuse,        // the stream could not be opened, or ended for good
  kAbort,         // the request ended
};

// The receiving half: the states and events of one reservation at the decode worker.
enum class ReceiveState : uint8_t {
  kWaiting,   // there is no room yet
  kAwaited,   // blocks are set aside, and KV is expected
  kComplete,  // all KV is in place and verified
  kBroken,    // the KV will never be complete
  kDraining,  // released while a payload was being written; blocks are freed after the write
  kGone,
};
enum class ReceiveEvent : uint8_t {
  kAdmit,              // there is room
  kReject,             // it waited too long, its caller cancelled it, or the queue is full
  kComplete,           // the commit was acknowledged
  kBreak,              // the commit was refused
  kTake,               // a request takes over the KV
  kRelease,            // released, expired or cancelled while nothing is being written
  kReleaseUnderWrite,  // released, expired or cancelled while a payload is being written
  kDrain,              // the payload that was being written has landed
  kShutDown,           // the engine has shut down: the pool is not used again
};

struct SendTransition {
  SendState from;
  SendEvent event;
  SendState to;
};
struct ReceiveTransition {
  ReceiveState from;
  ReceiveEvent event;
  ReceiveState to;
};

inline constexpr SendTransition kSendTransitions[] = {
    {SendState::kClosed, SendEvent::kOpen, SendState::kStreaming},
    {SendState::kClosed, SendEvent::kRefuse, SendState::kEnded},
    {SendState::kClosed, SendEvent::kAbort, SendState::kEnded},
    {SendState::kStreaming, SendEvent::kCommit, SendState::kCommitted},
    {SendState::kStreaming, SendEvent::kLose, SendState::kLost},
    {SendState::kStreaming, SendEvent::kRefuse, SendState::kEnded},
    {SendState::kStreaming, SendEvent::kAbort, SendState::kEnded},
    {SendState::kCommitted, SendEvent::kAcknowledged, SendState::kEnded},
    {SendState::kCommitted, SendEvent::kLose, SendState::kLost},
    {SendState::kCommitted, SendEvent::kRefuse, SendState::kEnded},
    {SendState::kCommitted, SendEvent::kAbort, SendState::kEnded},
    {SendState::kLost, SendEvent::kCommit, SendState::kLost},
    {SendState::kLost, SendEvent::kReopen, SendState::kStreaming},
    {SendState::kLost, SendEvent::kRefuse, SendState::kEnded},
    {SendState::kLost, SendEvent::kAbort, SendState::kEnded},
    {SendState::kEnded, SendEvent::kAbort, SendState::kEnded},
};

inline constexpr ReceiveTransition kReceiveTransitions[] = {
    {ReceiveState::kWaiting, ReceiveEvent::kAdmit, ReceiveState::kAwaited},
    {ReceiveState::kWaiting, ReceiveEvent::kReject, ReceiveState::kGone},
    {ReceiveState::kAwaited, ReceiveEvent::kComplete, ReceiveState::kComplete},
    {ReceiveState::kAwaited, ReceiveEvent::kBreak, ReceiveState::kBroken},
    {ReceiveState::kAwaited, ReceiveEvent::kRelease, ReceiveState::kGone},
    {ReceiveState::kAwaited, ReceiveEvent::kReleaseUnderWrite, ReceiveState::kDraining},
    {ReceiveState::kAwaited, ReceiveEvent::kShutDown, ReceiveState::kGone},
    {ReceiveState::kComplete, ReceiveEvent::kTake, ReceiveState::kGone},
    {ReceiveState::kComplete, ReceiveEvent::kRelease, ReceiveState::kGone},
    {ReceiveState::kComplete, ReceiveEvent::kShutDown, ReceiveState::kGone},
    {ReceiveState::kBroken, ReceiveEvent::kRelease, ReceiveState::kGone},
    {ReceiveState::kBroken, ReceiveEvent::kReleaseUnderWrite, ReceiveState::kDraining},
    {ReceiveState::kBroken, ReceiveEvent::kShutDown, ReceiveState::kGone},
    {ReceiveState::kDraining, ReceiveEvent::kDrain, ReceiveState::kGone},
    {ReceiveState::kDraining, ReceiveEvent::kShutDown, ReceiveState::kGone},
};

// The name of a state or event as docs/hand_off.md writes it: "streaming", "release under write".
std::string_view Name(SendState state);
std::string_view Name(SendEvent event);
std::string_view Name(ReceiveState state);
std::string_view Name(ReceiveEvent event);

// The state after `event`; nothing when the event is impossible in `state`.
std::optional<SendState> After(SendState state, SendEvent event);
std::optional<ReceiveState> After(ReceiveState state, ReceiveEvent event);

// Changes `state` to the state after `event`. CHECKs that the event is possible.
void Advance(SendState& state, SendEvent event);
void Advance(ReceiveState& state, ReceiveEvent event);

}  // namespace tandem
