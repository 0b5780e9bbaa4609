#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/handoff/states.h"
#include "engine/request.h"
#include "kvstore/prefix_key.h"

namespace tandem {

// A reservation that waits for room.
struct WaitingReservation {
  ReserveTicket ticket;
  ReserveRequest request;
  PrefixKey key;  // of its prompt
  std::function<void(absl::StatusOr<Reservation>)> done;
  TimePoint asked{};
  ReceiveState state = ReceiveState::kWaiting;
};

// The reservations of a decode engine that wait for room: by priority, then in the order in which
// they came, none overtakes another for being smaller, so that none starves. Bounded in number and
// in time. Decides who is next, who has waited too long, and when it is worth asking again; answers
// nobody. Thread: engine.
class AdmissionQueue {
 public:
  // At most `capacity`, each until its deadline or for `max_wait`.
  AdmissionQueue(int32_t capacity, Duration max_wait) : capacity_(capacity), max_wait_(max_wait) {}

  bool full() const { return size() >= capacity_; }
  bool empty() const { return waiting_.empty(); }
  int32_t size() const { return static_cast<int32_t>(waiting_.size()); }

  // Not when full.
  void Push(WaitingReservation reservation);
  // Who is to be admitted next; not when empty.
  WaitingReservation& Head() { return waiting_.front(); }
  // The head was admitted at `now`, or rejected for a reason of its own.
  WaitingReservation TakeHead(TimePoint now);
  std::optional<WaitingReservation> Take(ReserveTicket ticket);
  std::optional<WaitingReservation> Take(RequestId request);
  std::vector<WaitingReservation> TakeExpired(TimePoint now);
  TimePoint NextExpiry() const;

  // When room for one more is likely, as fast as the queue has moved of late: no faster than its
  // head, or one that `waited` in vain, shows that it moves.
  Duration RetryAfter(TimePoint now, Duration waited = {}) const;

 private:
  template <typename Condition>
  std::optional<WaitingReservation> TakeFirst(const Condition& condition);
  TimePoint ExpiryOf(const WaitingReservation& one) const;
  // Since when the head stands there.
  TimePoint HeadSince() const;

  const int32_t capacity_;
  const Duration max_wait_;
  std::list<WaitingReservation> waiting_;
  std::optional<TimePoint> latest_admission_;  // since which the queue was never empty
  std::optional<Duration> mean_interval_;      // between admissions while others waited
};

}  // namespace tandem
