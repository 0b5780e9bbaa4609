#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// Makes connections of one kind: listens for peers and connects to them. The framed transport
// (transfer/framed/) turns any medium into a Transport.
// Thread: the loop's, except for address(), MayReach and buffer_bytes, which are thread-safe; the
// first two are constant.
class Medium {
 public:
  virtual ~Medium() = default;

  // The name of the transport that uses the medium: "tcp", "shm", "loopback".
  virtual std::string_view name() const = 0;
  // The address that peers connect to, without the transport's name.
  virtual std::string address() const = 0;
  // Whether this worker may reach `peer`, an address() of the same kind: it cannot reach the shared
  // memory of another host. INVALID_ARGUMENT for a malformed address, UNAVAILABLE with the reason.
  // Does no I/O.
  virtual absl::Status MayReach(std::string_view peer) const = 0;

  // The loop watches this descriptor for input and then calls Accept.
  virtual int listener_fd() const = 0;
  // A connection that a peer has made; null when none waits. PERMISSION_DENIED when the peer
  // belongs to another user and was refused; other peers may still wait. RESOURCE_EXHAUSTED when
  // the process or the medium has no room; the loop asks again after a pause.
  virtual absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() = 0;
  // Begins to connect to `peer`.
  virtual absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) = 0;

  // Whether payloads travel through a side channel of each connection; FramedOptions::device then
  // holds them.
  virtual bool has_side_channels() const { return false; }
  // Whether payloads may lie anywhere in the memory of the transport's device.
  virtual bool carries_any_memory() const { return true; }
  // INVALID_ARGUMENT for a payload that the medium cannot carry because of where it lies or of its
  // size. Thread-safe.
  virtual absl::Status MayCarry(std::span<const std::byte>) const { return absl::OkStatus(); }

  // OK, or an error that only a restart of the process cures. The transport's turns
  // (FramedOptions::turns) then stop, which the watchdog notices. Thread-safe.
  virtual absl::Status health() const { return absl::OkStatus(); }

  // The memory for payloads under way: what was set aside at the start, plus the most that the
  // present connections may take (TLS). 0 when the system reads payloads where they lie.
  // Thread-safe.
  virtual size_t buffer_bytes() const = 0;
};

}  // namespace tandem
