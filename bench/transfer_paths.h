#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "transfer/media/tcp/tcp_medium.h"
#include "transfer/transport.h"

namespace tandem {

// What one stream carries: `layers` times `blocks` extents, behind one another in the pools of both
// sides.
struct Load {
  std::string name;
  uint32_t extent_bytes = 0;
  uint32_t layers = 1;
  uint32_t blocks = 0;
  uint32_t first = 0;  // the place of the first extent, in extents

  uint32_t extents() const { return layers * blocks; }
  size_t bytes() const { return size_t{extents()} * extent_bytes; }
  size_t offset() const { return size_t{first} * extent_bytes; }
};

struct PathOptions {
  size_t extent_bytes = 0;  // the largest
  TlsFiles tls;
};

// The receiving sides; called in the receiving process. Payloads lie in the memory of `device`:
// where that is not the host, only the ways within a machine are there.
std::vector<std::unique_ptr<Transport>> OpenReceivers(const PathOptions& options, Device& device,
                                                      FrameReceiver& receiver);

// One way of sending streams: a transport of this process, and the address of the receiving side.
class SendingPath {
 public:
  SendingPath(std::string name, std::unique_ptr<Transport> transport, std::string peer)
      : name_(std::move(name)), transport_(std::move(transport)), peer_(std::move(peer)) {}

  const std::string& name() const { return name_; }
  const Transport& transport() const { return *transport_; }
  // A stream of the load out of `pool`, layer by layer; returns when it is acknowledged.
  void Send(const Load& load, std::span<const std::byte> pool);

 private:
  std::string name_;
  std::unique_ptr<Transport> transport_;
  std::string peer_;
  uint64_t last_stream_ = 0;
};

// All ways to the receiving sides at `addresses` (OpenReceivers) out of `pool`, the whole of what
// AllocateShared gave.
std::vector<SendingPath> OpenSenders(const PathOptions& options, Device& device,
                                     std::span<const std::byte> pool,
                                     const std::vector<std::string>& addresses);

}  // namespace tandem
