#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "transfer/shm/ring.h"

namespace tandem {

// The two rings of a connection, and the socket over which each side wakes the other: one byte for
// each time that a flag was set (transfer/shm/ring.h). The socket's end is the peer's death.
//
// Read alone takes wake-ups from the socket: one that was meant for Write would be lost if Write
// took those of Read and nobody came back to read. What Read took of Write's shows in
// wants_output(). So after a Read that returned 0 there is a wake-up in the socket or a flag is
// set, and after a Write that returned 0 that, or wants_output().
// Thread: the loop's.
class RingStream {
 public:
  // `socket` stays the caller's and outlives this.
  RingStream(int socket, RingReader in, RingWriter out) : socket_(socket), in_(in), out_(out) {}

  // As ByteChannel's.
  absl::StatusOr<size_t> Read(std::span<const iovec> parts);
  absl::StatusOr<size_t> Write(std::span<const iovec> parts);
  bool wants_output() const { return blocked_ && !out_.armed(); }

 private:
  absl::StatusOr<size_t> Get(std::span<const iovec> parts);
  absl::StatusOr<size_t> Put(std::span<const iovec> parts);
  // At least one byte waits, or the flag is set.
  absl::StatusOr<bool> AwaitInput();
  absl::StatusOr<bool> AwaitRoom();
  absl::Status TakeWakes();
  void LookForTheEnd();
  void Wake();
  void Note(SleepChange change);

  const int socket_;
  RingReader in_;
  RingWriter out_;
  int64_t wakes_owed_ = 0;  // at most: what the peer may still send
  bool blocked_ = false;    // the last Write could take none
  bool peer_gone_ = false;
};

}  // namespace tandem
