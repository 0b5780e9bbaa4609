#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/media/medium.h"
#include "transfer/media/memory_greeting.h"

namespace tandem {

// The address at which a process listens for others of its host: a name in the abstract namespace
// of unix sockets. Only processes of the same host and network namespace can reach it; `host`
// identifies both. The text form is "HOST-NAME", where HOST has 16 hexadecimal digits.
struct HostAddress {
  uint64_t host = 0;
  std::string name;

  std::string Text() const;
};

// Parses the text form of a HostAddress. INVALID_ARGUMENT quotes a malformed text.
absl::StatusOr<HostAddress> ParseHostAddress(std::string_view text);

// Makes an address of this host with a new name that nobody can guess. `host` is a hash of the boot
// id and the network namespace. UNAVAILABLE when the system does not provide one of them, or no
// random bytes.
absl::StatusOr<HostAddress> NewHostAddress();

// A unix socket on which peers of this host find a medium.
struct HostListener {
  HostAddress address;
  UniqueFd socket;

  // Listens at a new address of this host. UNAVAILABLE when that fails.
  static absl::StatusOr<HostListener> Open();
};

// A medium that connects processes of the same host, network namespace and user: the connecting
// side shares memory, from which the accepting side reads payloads (docs/media/ipc.md). The media
// that derive from it differ in which memory that is. Outlives its channels.
class HostMedium : public Medium {
 public:
  std::string address() const override { return listener_.address.Text(); }
  absl::Status MayReach(std::string_view peer) const override;

  int listener_fd() const override { return listener_.socket.get(); }
  absl::StatusOr<std::unique_ptr<ByteChannel>> Accept() override;
  absl::StatusOr<std::unique_ptr<ByteChannel>> Connect(std::string_view peer) override;

  bool has_side_channels() const override { return true; }

 protected:
  explicit HostMedium(HostListener listener) : listener_(std::move(listener)) {}

  // What this side shares over one connection that it makes.
  struct SharedMemory {
    MemoryGreeting greeting;
    std::vector<int> files;  // those of the segments that have one, in their order
    std::shared_ptr<SideChannel> side_channel;
  };
  // The memory that this side shares over a new connection. UNAVAILABLE when none is left.
  virtual absl::StatusOr<SharedMemory> Share() = 0;
  // Opens the memory that a peer shares. `files` are all files that came with the greeting. Errors
  // as Device::OpenShared; RESOURCE_EXHAUSTED and UNAVAILABLE say that a later attempt may succeed.
  // May take milliseconds.
  virtual absl::StatusOr<std::unique_ptr<SideChannel>> OpenShared(const MemoryGreeting& greeting,
                                                                  std::vector<UniqueFd> files) = 0;

 private:
  const HostListener listener_;
};

}  // namespace tandem
