#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "transfer/framed/connection.h"

namespace tandem {

// Hears that one of its connections was closed. The connection exists until this returns.
class ConnectionOwner {
 public:
  virtual void OnClosed(uint64_t id, const absl::Status& status) = 0;

 protected:
  ~ConnectionOwner() = default;
};

// The connections of a transport, the events that they wait for, and their turns.
// Thread: the loop's.
class ConnectionTable {
 public:
  static constexpr uint64_t kWakeId = 0;
  static constexpr uint64_t kListenerId = 1;

  // UNAVAILABLE when the process has no descriptor left.
  static absl::StatusOr<ConnectionTable> Create();
  explicit ConnectionTable(UniqueFd epoll) : epoll_(std::move(epoll)) {}

  // Events on `fd` are reported with `id`, kWakeId or kListenerId.
  void Watch(int fd, uint64_t id);
  void Unwatch(int fd);
  // Waits for at most `milliseconds`; the ids whose descriptors have events.
  std::span<const uint64_t> Wait(int milliseconds);

  // For a connection that is about to be added.
  uint64_t NewId() { return next_id_++; }
  // `peer` names the other side in the log.
  void Add(uint64_t id, std::unique_ptr<Connection> connection, ConnectionOwner& owner,
           std::string_view peer);
  bool contains(uint64_t id) const { return connections_.contains(id); }
  // Closes the connection, logs why, and tells its owner.
  void Close(uint64_t id, const absl::Status& status);
  // Closes the connection and tells its owner, without a line in the log.
  void CloseQuietly(uint64_t id, const absl::Status& status);
  void CloseAll(const absl::Status& status);

  // Gives the connection a turn, after which it may be closed. No effect on one that is not here.
  void Advance(uint64_t id);
  // Gives the connection a turn in the next AdvanceUnfinished, whether or not it has an event.
  void WantTurn(uint64_t id) { unfinished_.push_back(id); }
  bool has_unfinished() const { return !unfinished_.empty(); }
  void AdvanceUnfinished();

  // Connections of which nothing moved for too long.
  std::vector<uint64_t> Overdue(TimePoint now) const;
  TimePoint earliest_deadline() const;

 private:
  struct Entry {
    std::unique_ptr<Connection> connection;
    ConnectionOwner* owner = nullptr;
    std::string peer;
    int watched_fd = -1;
    uint32_t interest = 0;
  };

  void UpdateInterest(uint64_t id, Entry& entry);

  UniqueFd epoll_;
  std::vector<uint64_t> ready_;
  absl::flat_hash_map<uint64_t, Entry> connections_;
  std::vector<uint64_t> unfinished_;
  uint64_t next_id_ = kListenerId + 1;
};

}  // namespace tandem
