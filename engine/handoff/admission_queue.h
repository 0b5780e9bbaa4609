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
  PrefixKey key;  // prefix key of the request's prompt
  std::function<void(absl::StatusOr<Reservation>)> done;
  TimePoint asked{};
  ReceiveState state = ReceiveState::kWaiting;
};

// The reservations of a decode engine that wait for room, ordered by priority, then by arrival. A
// small one never overtakes a large one, so that none starves. The queue is bounded in number and
// in time. It decides which reservation is next, which has waited too long, and after what time a
// caller should retry; the class Reservations answers the callers. Thread: engine.
class AdmissionQueue {
 public:
  // Holds at most `capacity` reservations, each until its deadline or for `max_wait`.
  AdmissionQueue(int32_t capacity, Duration max_wait) : capacity_(capacity), max_wait_(max_wait) {}

  bool full() const { return size() >= capacity_; }
  bool empty() const { return waiting_.empty(); }
  int32_t size() const { return static_cast<int32_t>(waiting_.size()); }

  // Inserts a reservation behind those of equal or higher priority. The queue must not be full.
  void Push(WaitingReservation reservation);
  // The reservation to be admitted next. The queue must not be empty.
  WaitingReservation& Head() { return waiting_.front(); }
  // Removes the head, because it was admitted at `now` or rejected.
  WaitingReservation TakeHead(TimePoint now);
  std::optional<WaitingReservation> Take(ReserveTicket ticket);
  std::optional<WaitingReservation> Take(RequestId request);
  std::vector<WaitingReservation> TakeExpired(TimePoint now);
  TimePoint NextExpiry() const;

  // The time after which room for one more reservation is likely, by the recent rate of admissions.
  // The rate is lowered to what the waiting time of the head suggests, and the result is raised to
  // `waited`, the time that a reservation has waited in vain; it stays within fixed bounds.
  Duration RetryAfter(TimePoint now, Duration waited = {}) const;

 private:
  template <typename Condition>
  std::optional<WaitingReservation> TakeFirst(const Condition& condition);
  TimePoint ExpiryOf(const WaitingReservation& one) const;
  // The time since which the present head has been at the front of the queue.
  TimePoint HeadSince() const;

  const int32_t capacity_;
  const Duration max_wait_;
  std::list<WaitingReservation> waiting_;
  std::optional<TimePoint> latest_admission_;  // none: the queue was empty since the last admission
  std::optional<Duration> mean_interval_;      // mean time between admissions while others waited
};

}  // namespace tandem
