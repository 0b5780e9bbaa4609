#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transfer/byte_channel.h"

namespace tandem {

// One way of making connections: where it listens, and how it reaches others of its kind. The
// framed transport (transfer/framed/) turns any medium into a Transport.
// Thread: the loop's, but for address(), MayReach and buffer_bytes, which are thread-safe; the
// first two are constant.
class Medium {
 public:
  virtual ~Medium() = default;

  // "tcp", "shm", "loopback": the scheme of its addresses.
  virtual std::string_view name() const = 0;
  // Where peers connect to, without the scheme.
  virtual std::string address() const = 0;
  // Whether trying `peer` (an address() of the same kind) makes sense from here: another host's
  // shared memory does not. INVALID_ARGUMENT for what is no such address, UNAVAILABLE with the
  // reason. Does no I/O.
  virtual absl::Status MayReach(std::string_view peer) const = 0;

  // What the loop watches for input; Accept when there is some.
  virtual int listener_fd() const = 0;
  // A connection that a peer made; null when there is none left. PERMISSION_DENIED when the peer
  // may not make one (another user): it was told so; others may wait. RESOURCE_EXHAUSTED when the
  // process or the medium has no room: the listener is looked at again after a pause.
  virtual absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() = 0;
  // Begins to connect to `peer`.
  virtual absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) = 0;

  // Whether its channels have a lane for payloads: then FramedOptions::device is what they lie in.
  virtual bool has_lanes() const { return false; }
  // Whether a payload may be posted, where it lies and as large as it is; else INVALID_ARGUMENT
  // says why not. Thread-safe.
  virtual absl::Status MayCarry(std::span<const std::byte>) const { return absl::OkStatus(); }

  // OK, or what the process can only be rid of by being started anew: then the transport's turns
  // (FramedOptions::turns) stand still, for whoever watches over them. Thread-safe.
  virtual absl::Status health() const { return absl::OkStatus(); }

  // Memory for what is under way: what was set aside at the start, and what the connections that
  // there are now may take besides (TLS), at its most. 0 where bytes go straight from their place
  // to the system. Thread-safe.
  virtual size_t buffer_bytes() const = 0;
};

}  // namespace tandem
