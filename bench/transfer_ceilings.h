#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transfer/tcp/socket.h"

namespace tandem {

// What a transport is measured against: the plainest ways from one process to another. Made before
// the fork, after which either process uses one end. All calls block; a peer that is gone ends the
// process within seconds.

// Copy in, copy out, through a ring of anonymous shared memory. Either side sleeps on a futex, and
// is woken only then.
class CopyRing {
 public:
  explicit CopyRing(size_t bytes);
  ~CopyRing();
  CopyRing(const CopyRing&) = delete;
  CopyRing& operator=(const CopyRing&) = delete;

  void Write(std::span<const std::byte> bytes);
  void Read(std::span<std::byte> bytes);

 private:
  // Counts pieces, of which one side moves `written` and the other `read`.
  struct Control {
    alignas(64) std::atomic<uint32_t> written;
    alignas(64) std::atomic<uint32_t> read;
    alignas(64) std::atomic<uint32_t> reader_sleeps;
    alignas(64) std::atomic<uint32_t> writer_sleeps;
  };

  std::byte* Piece(uint32_t index) const;

  const size_t mapped_bytes_;
  const uint32_t num_pieces_;
  std::byte* const memory_;
  Control& control_;
};

// One TCP connection over the loopback interface; calls of 1 MiB.
class BareSocket {
 public:
  BareSocket();
  // After the fork: lets go of the end that is the other process's.
  void KeepSender() { receiver_ = UniqueFd(); }
  void KeepReceiver() { sender_ = UniqueFd(); }

  void Write(std::span<const std::byte> bytes);
  void Read(std::span<std::byte> bytes);

 private:
  UniqueFd sender_;
  UniqueFd receiver_;
};

}  // namespace tandem
