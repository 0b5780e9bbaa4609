#pragma once

#include <functional>
#include <optional>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/ids.h"
#include "engine/handoff/outgoing_kv.h"
#include "engine/output_stream.h"
#include "engine/request.h"
#include "transfer/transport.h"

// The messages of other threads to the engine thread. Messages that ask for resources are refused
// when the inbox is full (TryPush). Messages that free resources, or report on admitted requests,
// are never refused (PushAlways).

namespace tandem {

// A request of a client, from Engine::Submit or Engine::SubmitPrefill.
struct SubmitMessage {
  EngineRequest request;
  std::optional<HandoffTarget> target;  // role prefill
  std::optional<OutgoingKv> outgoing;   // role prefill, once the engine thread opened its stream
  OutputStream stream;
  TimePoint accepted{};
};
struct ReserveMessage {
  ReserveTicket ticket;
  ReserveRequest request;
  std::function<void(absl::StatusOr<Reservation>)> done;
  TimePoint asked{};
};
struct CancelReserveMessage {
  ReserveTicket ticket;
};
struct DecodeMessage {
  DecodeRequest decode;
  OutputStream stream;
  TimePoint accepted{};
};
struct CancelMessage {
  RequestId id;
  absl::Status status;
};
struct EndChoiceMessage {
  RequestId id;
  int32_t index = 0;
};
// Releases a reservation, which is named by its id or, before that is known, by the request that
// asked for it.
struct ReleaseMessage {
  std::variant<ReservationId, RequestId> what;
};
struct ShutdownMessage {
  TimePoint deadline = kNoDeadline;
};
struct TransportMessage {
  Transport* transport = nullptr;
};

// A KV stream of a hand-off has ended. From the transport's thread or a codec worker.
struct StreamEndedMessage {
  RequestId request;
  uint64_t attempt = 0;  // OutgoingKv::attempt of the stream
  absl::Status status;
  TimePoint at{};
};
// All KV of the reservation is in place and verified (OK), or will never be complete (error). From
// a transport's thread.
struct KvArrivedMessage {
  ReservationId reservation;
  absl::Status status;
  TimePoint at{};
};
// The last write into the blocks of a closed reservation has ended.
struct KvDrainedMessage {
  ReservationId reservation;
};

// A copy between device and host has ended. From the KV store's thread.
struct KvCopiedMessage {};

using Message =
    std::variant<SubmitMessage, ReserveMessage, CancelReserveMessage, DecodeMessage, CancelMessage,
                 EndChoiceMessage, ReleaseMessage, ShutdownMessage, TransportMessage,
                 StreamEndedMessage, KvArrivedMessage, KvDrainedMessage, KvCopiedMessage>;
using Inbox = BoundedQueue<Message>;

}  // namespace tandem
