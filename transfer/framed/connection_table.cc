#include "transfer/framed/connection_table.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/log.h"

namespace tandem {

void ConnectionTable::Watch(int fd, uint64_t id) {
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  TANDEM_CHECK(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0, "epoll_ctl of a socket");
}

void ConnectionTable::Unwatch(int fd) { epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const uint64_t> ConnectionTable::Wait(int milliseconds) {
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), events.size(), milliseconds);
  ready_.clear();
  for (int i = 0; i < count; ++i) ready_.push_back(events[static_cast<size_t>(i)].data.u64);
  return ready_;
}

void ConnectionTable::Add(uint64_t id, std::unique_ptr<Connection> connection,
                          std::string_view peer, Closed closed) {
  Entry& entry = connections_[id];
  entry.connection = std::move(connection);
  entry.peer = std::string(peer);
  entry.closed = std::move(closed);
  UpdateInterest(id, entry);
}

void ConnectionTable::UpdateInterest(uint64_t id, Entry& entry) {
  const int fd = entry.connection->fd();
  const uint32_t interest = EPOLLIN | (entry.connection->wants_output() ? EPOLLOUT : 0u);
  if (fd < 0 || (fd == entry.watched_fd && interest == entry.interest)) return;
  epoll_event event{.events = interest, .data = {.u64 = id}};
  const int operation = fd == entry.watched_fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  TANDEM_CHECK(epoll_ctl(epoll_.get(), operation, fd, &event) == 0, "epoll_ctl of a socket");
  entry.watched_fd = fd;
  entry.interest = interest;
}

void ConnectionTable::Advance(uint64_t id) {
  const auto place = connections_.find(id);
  if (place == connections_.end()) return;  // an earlier event closed the connection
  Connection& connection = *place->second.connection;
  const absl::StatusOr<Turn> turn = connection.Advance();
  if (!turn.ok()) return Close(id, turn.status());
  if (*turn == Turn::kMore) WantTurn(id);
  UpdateInterest(id, connections_.at(id));
}

void ConnectionTable::AdvanceUnfinished() {
  for (const uint64_t id : std::exchange(unfinished_, {})) Advance(id);
}

void ConnectionTable::Close(uint64_t id, const absl::Status& status) {
  const Entry& entry = connections_.at(id);
  // That a connection ends between frames is ordinary: a worker stops, and its peers notice.
  const bool idle = entry.connection->deadline() == kNoDeadline;
  const auto level = !absl::IsUnavailable(status) ? LogLevel::kWarn
                     : idle                       ? LogLevel::kDebug
                                                  : LogLevel::kInfo;
  Log(level, "transfer connection closed peer={} reason=\"{}\"", entry.peer,
      std::string(status.message()));
  CloseQuietly(id, status);
}

void ConnectionTable::CloseQuietly(uint64_t id, const absl::Status& status) {
  const auto node = connections_.extract(id);
  TANDEM_CHECK(!node.empty(), "closed a connection twice");
  node.mapped().connection->OnClosed(status);
  node.mapped().closed(status);
}

void ConnectionTable::CloseAll(const absl::Status& status) {
  while (!connections_.empty()) Close(connections_.begin()->first, status);
}

std::vector<uint64_t> ConnectionTable::Overdue(TimePoint now) const {
  std::vector<uint64_t> overdue;
  for (const auto& [id, entry] : connections_) {
    if (entry.connection->deadline() <= now) overdue.push_back(id);
  }
  return overdue;
}

TimePoint ConnectionTable::earliest_deadline() const {
  TimePoint earliest = kNoDeadline;
  for (const auto& [id, entry] : connections_) {
    earliest = std::min(earliest, entry.connection->deadline());
  }
  return earliest;
}

}  // namespace tandem
