#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/unique_fd.h"

namespace tandem {

// What a transport counts over all of its connections since its start.
struct TransportCounters {
  // Bytes that were sent and received, including headers and payloads that travel beside the
  // channel.
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> received{0};
  // What peers sent and this side refused, as in RefusedFrames.
  std::atomic<uint64_t> malformed{0};
  std::atomic<uint64_t> corrupted{0};
  std::atomic<uint64_t> stale{0};
  std::atomic<uint64_t> unauthenticated{0};
  std::atomic<uint64_t> closed{0};
};

struct Timeouts {
  std::chrono::milliseconds connect{};  // the limit until the first bytes
  std::chrono::milliseconds stall{};    // the limit without progress while something is under way
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
  // The descriptor to watch, and whether to watch it for output, as in ByteChannel.
  virtual int fd() const = 0;
  virtual bool wants_output() const = 0;
  // Establishes the connection, reads and writes, as far as possible without waiting.
  virtual absl::StatusOr<Turn> Advance() = 0;
  // The time at which the connection is closed unless it makes progress before.
  virtual TimePoint deadline() const = 0;
  // The connection is over for the reason in `status`. Called once, before the destructor.
  virtual void OnClosed(const absl::Status& status) = 0;
};

// The bytes that a connection may move in one turn, bounded so that a busy peer does not keep the
// loop from the others.
inline constexpr size_t kBytesPerTurn = 4 << 20;

// The connections of a transport, the events that they wait for, and their turns.
// Thread: the loop's.
class ConnectionTable {
 public:
  static constexpr uint64_t kWakeId = 0;
  static constexpr uint64_t kListenerId = 1;

  explicit ConnectionTable(UniqueFd epoll) : epoll_(std::move(epoll)) {}

  // Events on `fd` are reported with `id`, kWakeId or kListenerId.
  void Watch(int fd, uint64_t id);
  void Unwatch(int fd);
  // Waits for at most `milliseconds`. Returns the ids whose descriptors have events.
  std::span<const uint64_t> Wait(int milliseconds);

  // The id for a connection that is about to be added.
  uint64_t NewId() { return next_id_++; }
  // Called when a connection was closed; the connection exists until the call returns.
  using Closed = std::function<void(const absl::Status& status)>;
  // Adds a connection; `peer` names the other side in the log.
  void Add(uint64_t id, std::unique_ptr<Connection> connection, std::string_view peer,
           Closed closed);
  // Closes the connection and logs why.
  void Close(uint64_t id, const absl::Status& status);
  // Closes the connection without a line in the log.
  void CloseQuietly(uint64_t id, const absl::Status& status);
  void CloseAll(const absl::Status& status);

  // Gives the connection a turn, after which it may be closed. No effect for an id that is not in
  // the table.
  void Advance(uint64_t id);
  // Gives the connection a turn in the next AdvanceUnfinished, whether or not it has an event.
  void WantTurn(uint64_t id) { unfinished_.push_back(id); }
  bool has_unfinished() const { return !unfinished_.empty(); }
  void AdvanceUnfinished();

  // The ids of the connections whose deadline has passed without progress.
  std::vector<uint64_t> Overdue(TimePoint now) const;
  TimePoint earliest_deadline() const;

 private:
  struct Entry {
    std::unique_ptr<Connection> connection;
    std::string peer;
    Closed closed;
    int watched_fd = -1;
    uint32_t interest = 0;
  };

  void UpdateInterest(uint64_t id, Entry& entry);

  const UniqueFd epoll_;
  std::vector<uint64_t> ready_;
  absl::flat_hash_map<uint64_t, Entry> connections_;
  std::vector<uint64_t> unfinished_;
  uint64_t next_id_ = kListenerId + 1;
};

}  // namespace tandem
