#include "server/http/connection_book.h"

#include <utility>

namespace tandem {

std::optional<ConnectionBook::Id> ConnectionBook::Add(std::function<void()> close) {
  absl::MutexLock lock(&mutex_);
  if (static_cast<int>(by_age_.size()) >= limit_ && !CloseOldestLocked()) return std::nullopt;
  const Id id = ++last_number_;
  const Order order = {ConnectionState::kWaiting, id};
  connections_.emplace(id, Entry{.order = order, .close = std::move(close)});
  by_age_.emplace(order, id);
  return id;
}

void ConnectionBook::Remove(Id id) {
  std::function<void()> close;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  by_age_.erase(found->second.order);
  close = std::move(found->second.close);
  connections_.erase(found);
  if (connections_.empty()) emptied_.Signal();
}

void ConnectionBook::Enter(Id id, ConnectionState state) {
  absl::MutexLock lock(&mutex_);
  const auto found = connections_.find(id);
  if (found == connections_.end() || found->second.closing) return;
  by_age_.erase(found->second.order);
  found->second.order = {state, ++last_number_};
  by_age_.emplace(found->second.order, id);
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
  by_age_.erase(entry.order);
  entry.close();
}

void ConnectionBook::CloseWaiting() {
  absl::MutexLock lock(&mutex_);
  while (!by_age_.empty() && by_age_.begin()->first.first == ConnectionState::kWaiting) {
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
