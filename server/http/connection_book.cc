#include "server/http/connection_book.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

// At most one in kHandshakeShare connections may be in its TLS handshake, but kLeastHandshakes may
// always be.
constexpr int kHandshakeShare = 8;
constexpr int kLeastHandshakes = 16;

}  // namespace

std::optional<ConnectionBook::Id> ConnectionBook::Add(ConnectionState state,
                                                      std::function<void()> close) {
  absl::MutexLock lock(&mutex_);
  if (!HasRoomFor(state) && !CloseOldestLocked()) return std::nullopt;
  const Id id = ++last_number_;
  const Order order = {state, id};
  connections_.emplace(id, Entry{.order = order, .close = std::move(close)});
  Insert(order, id);
  return id;
}

bool ConnectionBook::HasRoomFor(ConnectionState state) const {
  if (static_cast<int>(by_age_.size()) >= limit_) return false;
  return state != ConnectionState::kHandshake ||
         handshakes_ < std::max(limit_ / kHandshakeShare, kLeastHandshakes);
}

void ConnectionBook::Insert(Order order, Id id) {
  by_age_.emplace(order, id);
  if (order.first == ConnectionState::kHandshake) ++handshakes_;
}

void ConnectionBook::Erase(Order order) {
  if (by_age_.erase(order) > 0 && order.first == ConnectionState::kHandshake) --handshakes_;
}

void ConnectionBook::Remove(Id id) {
  std::function<void()> close;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Erase(found->second.order);
  close = std::move(found->second.close);
  connections_.erase(found);
  if (connections_.empty()) emptied_.Signal();
}

void ConnectionBook::Enter(Id id, ConnectionState state) {
  absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.closing) return;
  Erase(found->second.order);
  found->second.order = {state, ++last_number_};
  Insert(found->second.order, id);
}

bool ConnectionBook::CloseOldest() {
  absl::MutexLock lock(&mutex_);
  return CloseOldestLocked();
}

bool ConnectionBook::CloseOldestLocked() {
  if (by_age_.empty() || by_age_.begin()->first.first == ConnectionState::kAnswering) return false;
  Close(connections_.at(by_age_.begin()->second));
  ++evicted_;
  return true;
}

void ConnectionBook::Close(Entry& entry) {
  entry.closing = true;
  Erase(entry.order);
  entry.close();
}

void ConnectionBook::CloseWaiting() {
  absl::MutexLock lock(&mutex_);
  while (!by_age_.empty() && by_age_.begin()->first.first <= ConnectionState::kWaiting) {
    Close(connections_.at(by_age_.begin()->second));
  }
}

void ConnectionBook::CloseAll() {
  absl::MutexLock lock(&mutex_);
  while (!by_age_.empty()) Close(connections_.at(by_age_.begin()->second));
}

bool ConnectionBook::AwaitEmpty(TimePoint deadline) {
  absl::MutexLock lock(&mutex_);
  return emptied_.AwaitUntil(
      mutex_, deadline, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return connections_.empty(); });
}

int ConnectionBook::open() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(connections_.size());
}

uint64_t ConnectionBook::evicted() const {
  absl::MutexLock lock(&mutex_);
  return evicted_;
}

}  // namespace tandem
