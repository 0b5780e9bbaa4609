#include "tests/fault/status_watch.h"

#include <algorithm>

namespace tandem {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(25);
constexpr std::chrono::seconds kAnswerWithin(5);

// Whether every worker was heard of after `since`, as far as a status that was asked for at `asked`
// can tell.
bool AllHeardSince(const v1::GetStatusResponse& status, TimePoint asked, TimePoint since) {
  return std::ranges::all_of(status.workers(), [&](const v1::WorkerStatus& worker) {
    const std::chrono::duration<double, std::milli> age(worker.heartbeat_age_ms());
    return asked - std::chrono::duration_cast<Duration>(age) > since;
  });
}

}  // namespace

void HandoffSum::Add(const HandoffSum& some) {
  lives += some.lives;
  const v1::HandoffUse& more = some.counts;
  counts.set_sent(counts.sent() + more.sent());
  counts.set_received(counts.received() + more.received());
  counts.set_retried(counts.retried() + more.retried());
  counts.set_lapsed(counts.lapsed() + more.lapsed());
  counts.set_refused(counts.refused() + more.refused());
  counts.set_corrupted_frames(counts.corrupted_frames() + more.corrupted_frames());
  counts.set_stale_frames(counts.stale_frames() + more.stale_frames());
  counts.set_unauthenticated_frames(counts.unauthenticated_frames() +
                                    more.unauthenticated_frames());
  counts.set_connections_closed(counts.connections_closed() + more.connections_closed());
}

StatusWatch::StatusWatch(const std::string& router)
    : client_(router), latest_(std::make_shared<const v1::GetStatusResponse>()) {
  thread_ = std::thread([this] { Run(); });
}

StatusWatch::~StatusWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  thread_.join();
}

void StatusWatch::Run() {
  while (true) {
    const TimePoint asked = std::chrono::steady_clock::now();
    auto status = client_.GetStatus(kAnswerWithin);
    absl::MutexLock lock(&mutex_);
    if (status.ok()) {
      Note(*status);
      latest_ = std::make_shared<const v1::GetStatusResponse>(*std::move(status));
      asked_ = asked;
      told_ = std::chrono::steady_clock::now();
    }
    if (mutex_.AwaitWithTimeout(absl::Condition(&stop_), kInterval)) return;
  }
}

void StatusWatch::Note(const v1::GetStatusResponse& status) {
  Peaks now;
  for (const v1::WorkerStatus& worker : status.workers()) {
    now.sending += worker.load().handoffs().sending();
    now.waiting_reservations += worker.load().handoffs().waiting_reservations();
    now.draining_reservations += worker.load().handoffs().draining_reservations();
    handoffs_[{worker.name(), worker.pid()}] = worker.load().handoffs();
  }
  peaks_.Raise(now);
}

void StatusWatch::Peaks::Raise(const Peaks& some) {
  for (auto peak : {&Peaks::sending, &Peaks::waiting_reservations, &Peaks::draining_reservations}) {
    this->*peak = std::max(this->*peak, some.*peak);
  }
}

StatusWatch::Peaks StatusWatch::peaks() const {
  absl::MutexLock lock(&mutex_);
  return peaks_;
}

HandoffSum StatusWatch::handoffs() const {
  absl::MutexLock lock(&mutex_);
  HandoffSum all;
  for (const auto& [life, handoffs] : handoffs_) all.Add({.lives = 1, .counts = handoffs});
  return all;
}

TimePoint StatusWatch::Await(const Condition& condition, Duration patience) const {
  return AwaitDated([&condition](const auto& status, TimePoint) { return condition(status); },
                    patience);
}

bool StatusWatch::AwaitReported(const Condition& condition, Duration patience) const {
  const TimePoint end = std::chrono::steady_clock::now() + patience;
  // The first report after this call may have been on its way, the second was made since.
  const TimePoint called = std::chrono::steady_clock::now();
  const TimePoint once = AwaitDated(
      [&](const auto& status, TimePoint asked) { return AllHeardSince(status, asked, called); },
      patience);
  if (once == kNoDeadline) return false;
  const auto twice = [&](const v1::GetStatusResponse& status, TimePoint asked) {
    return AllHeardSince(status, asked, once) && condition(status);
  };
  return AwaitDated(twice, end - std::chrono::steady_clock::now()) != kNoDeadline;
}

TimePoint StatusWatch::AwaitDated(const DatedCondition& condition, Duration patience) const {
  const TimePoint since = std::chrono::steady_clock::now();
  const auto met = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return asked_ >= since && condition(*latest_, asked_);
  };
  absl::MutexLock lock(&mutex_);
  const bool came = mutex_.AwaitWithTimeout(absl::Condition(&met), absl::FromChrono(patience));
  return came ? told_ : kNoDeadline;
}

std::shared_ptr<const v1::GetStatusResponse> StatusWatch::latest() const {
  absl::MutexLock lock(&mutex_);
  return latest_;
}

}  // namespace tandem
