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

// The reservations of a decode engine that wait for room, by priority, then by arrival. A small one
// never overtakes a large one, so that none starves. The queue is bounded in number and in time. It
// decides which reservation is next, which has waited too long, and after what time a caller should
// retry; the Reservations answer the callers. Thread: engine.
class AdmissionQueue {
 public:
  // Holds at most `capacity` reservations, each until its deadline or for `max_wait`.
  AdmissionQueue(int32_t capacity, Duration max_wait) : capacity_(capacity), max_wait_(max_wait) {}

  bool full() const { return size() >= capacity_; }
  bool empty() const { return waiting_.empty(); }
  int32_t size() const { return static_cast<int32_t>(waiting_.size()); }

  // The queue must not be full.
  void Push(WaitingReservation reservation);
  // The reservation to be admitted next. The queue must not be empty.
  WaitingReservation& Head() { return waiting_.front(); }
  // The head was admitted at `now`, or rejected for a reason of its own.
  WaitingReservation TakeHead(TimePoint now);
  std::optional<WaitingReservation> Take(ReserveTicket ticket);
  std::optional<WaitingReservation> Take(RequestId request);
  std::vector<WaitingReservation> TakeExpired(TimePoint now);
  TimePoint NextExpiry() const;

  // After what time room for one more is likely, by the recent rate of admissions. The rate is
  // assumed to be no higher than the waiting time of the head, or of a reservation that `waited` in
  // vain, shows.
  Duration RetryAfter(TimePoint now, Duration waited = {}) const;

 private:
  template <typename Condition>
  std::optional<WaitingReservation> TakeFirst(const Condition& condition);
  TimePoint ExpiryOf(const WaitingReservation& one) const;
  // The time at which the head became the head.
  TimePoint HeadSince() const;

  const int32_t capacity_;
  const Duration max_wait_;
  std::list<WaitingReservation> waiting_;
  std::optional<TimePoint> latest_admission_;  // none when the queue was empty since then
  std::optional<Duration> mean_interval_;      // between admissions while others waited
};

}  // namespace tandem
