#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"

namespace tandem {

// Bytes over all connections of a transport, headers included.
struct TransportCounters {
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> received{0};
};

// One connection as the I/O loop sees it. No call blocks; each does a bounded amount of work and
// leaves the rest to the next event. An error means that the connection is over.
// Thread: the loop's.
class Connection {
 public:
  virtual ~Connection() = default;
  // -1 while there is no socket yet. A new socket has another number than the one before.
  virtual int fd() const = 0;
  virtual absl::Status OnReadable() = 0;
  virtual absl::Status OnWritable() = 0;
  virtual bool wants_write() const = 0;
  // When it is to be closed unless something moves before.
  virtual TimePoint deadline() const = 0;
  // It is over, `status` says why; called once, before the destructor.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// The work of one event, so that one busy peer does not keep the loop from the others.
inline constexpr size_t kBytesPerTurn = 4 << 20;

}  // namespace tandem
