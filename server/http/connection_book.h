#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"

namespace tandem {

// What a connection is doing, in the order in which connections are closed to make room: one in its
// TLS handshake has not requested anything yet, and one that waits for a request costs its client
// little. One whose answer is being made is never closed to make room.
enum class ConnectionState : uint8_t { kHandshake, kWaiting, kReceiving, kAnswering };

// The open connections of one server, and which of them makes room for another one. Thread-safe.
class ConnectionBook {
 public:
  using Id = uint64_t;

  explicit ConnectionBook(int limit) : limit_(limit) {}

  // Adds a connection in `state`. `close` makes it end soon; it only queues a task, and is not
  // called after Remove. When there is no room, the connection that has waited or received longest
  // is closed; returns nothing when all are being answered. One in eight connections may be in its
  // handshake, which takes much more memory than waiting; beyond that the one that began its
  // handshake first is closed.
  std::optional<Id> Add(ConnectionState state, std::function<void()> close);
  void Remove(Id id);
  // Notes that the connection has entered `state`.
  void Enter(Id id, ConnectionState state);
  // Closes the connection that has waited or received longest; false when all are being answered.
  bool CloseOldest();
  void CloseWaiting();
  void CloseAll();
  // Waits until no connection is open. False when the deadline has passed before.
  bool AwaitEmpty(TimePoint deadline);

  int open() const;
  int limit() const { return limit_; }
  uint64_t evicted() const;

 private:
  // The key that orders connections: by state, and by age within a state.
  using Order = std::pair<ConnectionState, uint64_t>;
  struct Entry {
    Order order;
    std::function<void()> close;
    bool closing = false;
  };

  bool HasRoomFor(ConnectionState state) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Insert(Order order, Id id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(Order order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool CloseOldestLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(Entry& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int limit_;
  mutable absl::Mutex mutex_;  // held across `close`
  MonotonicCondVar emptied_;
  std::map<Id, Entry> connections_ ABSL_GUARDED_BY(mutex_);
  std::map<Order, Id> by_age_ ABSL_GUARDED_BY(mutex_);  // without those that are closing
  int handshakes_ ABSL_GUARDED_BY(mutex_) = 0;          // how many of by_age_ are in a handshake
  uint64_t last_number_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t evicted_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem
