#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace tandem {

// What a transport counts over all of its connections since its start.
struct TransportCounters {
  // Bytes, including headers and payloads that travel beside the channel.
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> received{0};
  // As in RefusedFrames.
  std::atomic<uint64_t> malformed{0};
  std::atomic<uint64_t> corrupted{0};
  std::atomic<uint64_t> stale{0};
  std::atomic<uint64_t> unauthenticated{0};
  std::atomic<uint64_t> closed{0};
};

struct Timeouts {
  std::chrono::milliseconds connect{};  // until the first bytes
  std::chrono::milliseconds stall{};    // without progress while something is under way
};

// How a connection's turn ended.
enum class Turn : uint8_t {
  kDone,  // it waits for an event
  kMore,  // it has done its share and wants another turn
};

// One connection as the I/O loop sees it. No call blocks; each does a bounded amount of work. After
// an error the connection is over.
// Thread: the loop's.
class Connection {
 public:
  virtual ~Connection() = default;
  // As in ByteChannel.
  virtual int fd() const = 0;
  virtual bool wants_output() const = 0;
  // Establishes, reads and writes as far as that goes now.
  virtual absl::StatusOr<Turn> Advance() = 0;
  // When the connection is closed unless something moves before.
  virtual TimePoint deadline() const = 0;
  // The connection is over for the reason in `status`. Called once, before the destructor.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// Bounds the work of one turn, so that a busy peer does not keep the loop from the others.
inline constexpr size_t kBytesPerTurn = 4 << 20;

}  // namespace tandem
