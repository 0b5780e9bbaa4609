#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace tandem {

// What a transport counts over all of its connections, since its start.
struct TransportCounters {
  // Bytes, headers and what lanes bring included.
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> received{0};
  // As in RefusedFrames.
  std::atomic<uint64_t> malformed{0};
  std::atomic<uint64_t> corrupted{0};
  std::atomic<uint64_t> stale{0};
  std::atomic<uint64_t> strangers{0};
  std::atomic<uint64_t> closed{0};
};

struct Timeouts {
  std::chrono::milliseconds connect{};  // until the first bytes
  std::chrono::milliseconds stall{};    // without progress while something is under way
};

// What a connection knows after its turn.
enum class Turn : uint8_t {
  kDone,  // waits for an event
  kMore,  // has done its share and wants another turn
};

// One connection as the I/O loop sees it. No call blocks; each does a bounded amount of work. An
// error means that the connection is over.
// Thread: the loop's.
class Connection {
 public:
  virtual ~Connection() = default;
  // As ByteChannel's.
  virtual int fd() const = 0;
  virtual bool wants_output() const = 0;
  // Goes on with what can go on: establishes, reads, writes.
  virtual absl::StatusOr<Turn> Advance() = 0;
  // When it is to be closed unless something moves before.
  virtual TimePoint deadline() const = 0;
  // It is over, `status` says why; called once, before the destructor.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// The work of one turn, so that one busy peer does not keep the loop from the others.
inline constexpr size_t kBytesPerTurn = 4 << 20;

}  // namespace tandem
