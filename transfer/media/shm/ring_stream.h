#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "transfer/media/shm/core_choice.h"
#include "transfer/media/shm/doorbell.h"
#include "transfer/media/shm/ring.h"

namespace tandem {

// The two rings of a connection and the doorbells with which the sides wake one another, once for
// each setting of a flag (transfer/media/shm/ring.h). The end of the socket means that the peer is
// dead; it carries nothing else.
//
// Only Read takes wake-ups from the doorbell, because Write could take one that was meant for Read
// and never come back to read. A wake-up for Write that Read takes is rung again. So after a call
// that returned 0, either the doorbell has been rung or the flag is set. Thread: the loop's.
class RingStream {
 public:
  // The caller's `socket` and the loop's `core_choice` outlive this object. `core_choice` is null at
  // an end that reads little.
  RingStream(int socket, Doorbell doorbell, CoreChoice* core_choice, RingReader in, RingWriter out)
      : socket_(socket),
        doorbell_(std::move(doorbell)),
        core_choice_(core_choice),
        in_(in),
        out_(out) {}

  // As ByteChannel::Read and ByteChannel::Write.
  absl::StatusOr<size_t> Read(std::span<const iovec> parts);
  absl::StatusOr<size_t> Write(std::span<const iovec> parts);

  // For a side channel that shares the doorbell. A wake-up is an event, which the next Read takes.
  void Ring() { doorbell_.Ring(); }
  void Note(SleepChange change);

 private:
  absl::StatusOr<size_t> Get(std::span<const iovec> parts);
  absl::StatusOr<size_t> Put(std::span<const iovec> parts);
  // True when at least one byte waits; otherwise the flag is set.
  absl::StatusOr<bool> AwaitInput();
  absl::StatusOr<bool> AwaitRoom();
  absl::StatusOr<bool> TakeWakes();
  void LeaveWritersCore();
  absl::Status LookForTheEnd();

  const int socket_;
  Doorbell doorbell_;
  CoreChoice* const core_choice_;
  RingReader in_;
  RingWriter out_;
  uint64_t wakes_owed_ = 0;  // the most wake-ups that the peer may still send
  bool blocked_ = false;     // the latest Write could take no byte
  bool peer_gone_ = false;
};

}  // namespace tandem
