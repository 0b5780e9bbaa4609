#include "engine/handoff/admission_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace tandem {
namespace {

constexpr Duration kFirstRetryAfter = std::chrono::seconds(1);  // while the rate is unknown
constexpr Duration kLeastRetryAfter = std::chrono::milliseconds(50);
constexpr Duration kMostRetryAfter = std::chrono::seconds(30);
// The latest interval between admissions enters their mean with a weight of 1 / kIntervalWeight.
constexpr int kIntervalWeight = 8;

}  // namespace

TimePoint AdmissionQueue::ExpiryOf(const WaitingReservation& one) const {
  return std::min(one.request.deadline, one.asked + max_wait_);
}

void AdmissionQueue::Push(WaitingReservation reservation) {
  TANDEM_CHECK(!full(), "more reservations wait than may");
  if (waiting_.empty()) latest_admission_.reset();
  const auto place = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& other) {
    return other.request.priority < reservation.request.priority;
  });
  waiting_.insert(place, std::move(reservation));
}

TimePoint AdmissionQueue::HeadSince() const {
  const TimePoint asked = waiting_.front().asked;
  return std::max(latest_admission_.value_or(asked), asked);
}

WaitingReservation AdmissionQueue::TakeHead(TimePoint now) {
  const TimePoint since = HeadSince();
  WaitingReservation head = std::move(waiting_.front());
  waiting_.pop_front();
  // A reservation that was admitted on arrival says nothing about how fast room becomes free.
  if (now > since) {
    const Duration interval = now - since;
    mean_interval_ = mean_interval_
                         ? *mean_interval_ + (interval - *mean_interval_) / kIntervalWeight
                         : interval;
  }
  latest_admission_ = now;
  return head;
}

template <typename Condition>
std::optional<WaitingReservation> AdmissionQueue::TakeFirst(const Condition& condition) {
  const auto place = std::find_if(waiting_.begin(), waiting_.end(), condition);
  if (place == waiting_.end()) return std::nullopt;
  WaitingReservation taken = std::move(*place);
  waiting_.erase(place);
  return taken;
}

std::optional<WaitingReservation> AdmissionQueue::Take(ReserveTicket ticket) {
  return TakeFirst([ticket](const auto& one) { return one.ticket == ticket; });
}

std::optional<WaitingReservation> AdmissionQueue::Take(RequestId request) {
  return TakeFirst([request](const auto& one) { return one.request.id == request; });
}

std::vector<WaitingReservation> AdmissionQueue::TakeExpired(TimePoint now) {
  std::vector<WaitingReservation> expired;
  for (auto place = waiting_.begin(); place != waiting_.end();) {
    if (ExpiryOf(*place) > now) {
      ++place;
      continue;
    }
    expired.push_back(std::move(*place));
    place = waiting_.erase(place);
  }
  return expired;
}

TimePoint AdmissionQueue::NextExpiry() const {
  TimePoint next = kNoDeadline;
  for (const WaitingReservation& one : waiting_) next = std::min(next, ExpiryOf(one));
  return next;
}

Duration AdmissionQueue::RetryAfter(TimePoint now, Duration waited) const {
  const int64_t turns = size() + 1;
  Duration after = mean_interval_ ? *mean_interval_ * turns : kFirstRetryAfter;
  if (!empty()) after = std::max(after, (now - HeadSince()) * turns);
  return std::clamp(std::max(after, waited), kLeastRetryAfter, kMostRetryAfter);
}

}  // namespace tandem
