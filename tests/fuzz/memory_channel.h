#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// A channel in memory whose other end is the fuzz target: what that wants to be read it puts into
// `incoming`, what was written it finds in `outgoing`.
class MemoryChannel final : public ByteChannel {
 public:
  // The other end, which outlives the channel.
  struct Peer {
    std::vector<std::byte> incoming;
    size_t piece_bytes = SIZE_MAX;  // that one Read gives at most
    std::vector<std::byte> outgoing;
    size_t room_bytes = SIZE_MAX;  // that Write takes from here on
    size_t read_ahead_bytes = 0;
    int reads = 0;  // calls of Read so far
    SideChannel* side_channel = nullptr;
  };

  explicit MemoryChannel(Peer& peer) : peer_(peer) {}

  int fd() const override { return -1; }
  bool wants_output() const override { return false; }
  absl::StatusOr<bool> Establish() override { return true; }
  size_t read_ahead_bytes() const override { return peer_.read_ahead_bytes; }
  SideChannel* side_channel() override { return peer_.side_channel; }

  absl::StatusOr<size_t> Read(std::span<const iovec> parts) override {
    ++peer_.reads;
    const size_t most = std::min(peer_.piece_bytes, peer_.incoming.size());
    size_t count = 0;
    for (const iovec& part : parts) {
      const size_t size = std::min(part.iov_len, most - count);
      if (size > 0) std::memcpy(part.iov_base, peer_.incoming.data() + count, size);
      count += size;
    }
    peer_.incoming.erase(peer_.incoming.begin(),
                         peer_.incoming.begin() + static_cast<ptrdiff_t>(count));
    return count;
  }

  absl::StatusOr<size_t> Write(std::span<const iovec> parts) override {
    size_t count = 0;
    for (const iovec& part : parts) {
      const size_t size = std::min(part.iov_len, peer_.room_bytes);
      const auto* bytes = static_cast<const std::byte*>(part.iov_base);
      peer_.outgoing.insert(peer_.outgoing.end(), bytes, bytes + size);
      peer_.room_bytes -= size;
      count += size;
    }
    return count;
  }

 private:
  Peer& peer_;
};

}  // namespace tandem
