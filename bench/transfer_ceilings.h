#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/device.h"
#include "transfer/media/tcp/socket.h"

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

// Between the memory of a device and a ring: copies to and from page-locked memory of the host, of
// which two pieces are under way, while the next is copied in or out of the ring. Of the host's
// memory nothing is staged.
class RelayEnd {
 public:
  explicit RelayEnd(Device& device);

  void Write(CopyRing& ring, std::span<const std::byte> bytes);
  void Read(CopyRing& ring, std::span<std::byte> bytes);

 private:
  static constexpr size_t kSlotBytes = size_t{1} << 20;

  std::span<std::byte> Slot(size_t index) const;

  const bool is_host_;
  const std::unique_ptr<Stream> stream_;
  const DeviceBuffer slots_;
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
