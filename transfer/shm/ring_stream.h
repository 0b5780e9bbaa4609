#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "transfer/shm/core_choice.h"
#include "transfer/shm/doorbell.h"
#include "transfer/shm/ring.h"

namespace tandem {

// The two rings of a connection, and the doorbell with which each side wakes the other: once for
// each time that a flag was set (transfer/shm/ring.h). The end of the socket is the peer's death;
// nothing else is ever on it.
//
// Read alone takes wake-ups from the doorbell: one that was meant for it would be lost if Write
// took it and nobody came back to read. What Read takes of Write's it rings again. So after a call
// that returned 0 the doorbell has been rung or its flag is set. Thread: the loop's.
class RingStream {
 public:
  // `socket` stays the caller's; both it and `core_choice`, the loop's, outlive this. Null where
  // little is read.
  RingStream(int socket, Doorbell doorbell, CoreChoice* core_choice, RingReader in, RingWriter out)
      : socket_(socket),
        doorbell_(std::move(doorbell)),
        core_choice_(core_choice),
        in_(in),
        out_(out) {}

  // As ByteChannel's.
  absl::StatusOr<size_t> Read(std::span<const iovec> parts);
  absl::StatusOr<size_t> Write(std::span<const iovec> parts);

  // For others who wake and are woken through the same doorbell. Whoever is sees it as an event,
  // which the next Read takes away.
  void Ring() { doorbell_.Ring(); }
  void Note(SleepChange change);

 private:
  absl::StatusOr<size_t> Get(std::span<const iovec> parts);
  absl::StatusOr<size_t> Put(std::span<const iovec> parts);
  // At least one byte waits, or the flag is set.
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
  uint64_t wakes_owed_ = 0;  // at most: what the peer may still send
  bool blocked_ = false;     // the last Write could take none
  bool peer_gone_ = false;
};

}  // namespace tandem
