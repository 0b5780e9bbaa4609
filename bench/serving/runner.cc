#include "bench/serving/runner.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/condition_variable.h"

namespace tandem::loadgen {
namespace {

TimePoint Now() { return std::chrono::steady_clock::now(); }

// How many requests are under way. The sending thread waits here for slots and for the end.
class Slots {
 public:
  // With a limit of 0, a slot is always free.
  explicit Slots(int32_t limit) : limit_(limit), free_since_(static_cast<size_t>(limit)) {}

  // Takes the slot that has been free for longest; returns since when.
  TimePoint Take() {
    absl::MutexLock lock(&mutex_);
    peak_ = std::max(peak_, ++taken_);
    if (limit_ == 0) return {};
    const TimePoint since = free_since_.front();
    free_since_.pop_front();
    return since;
  }
  // Takes note that a request ended: its slot is free, and its handle may be destroyed.
  void Free(size_t index) {
    absl::MutexLock lock(&mutex_);
    --taken_;
    ended_.push_back(index);
    if (limit_ > 0) free_since_.push_back(Now());
    // Without a limit the sending thread waits for times alone until it drains. The mutex is held,
    // because this object may be gone once the sending thread knows that nothing is under way.
    if (limit_ > 0 || draining_) changed_.Signal();
  }

  // Waits until a slot is free or the deadline has passed; returns whether one is free.
  bool AwaitFree(TimePoint deadline) {
    absl::MutexLock lock(&mutex_);
    return changed_.AwaitUntil(mutex_, deadline, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return limit_ == 0 || taken_ < limit_;
    });
  }
  // Waits until no request is under way or the deadline has passed; returns whether none is.
  bool AwaitIdle(TimePoint deadline) {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
    return changed_.AwaitUntil(
        mutex_, deadline, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return taken_ == 0; });
  }
  void WaitUntil(TimePoint time) {
    absl::MutexLock lock(&mutex_);
    changed_.AwaitUntil(mutex_, time, [] { return false; });
  }

  int32_t peak() const {
    absl::MutexLock lock(&mutex_);
    return peak_;
  }
  std::vector<size_t> TakeEnded() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(ended_, {});
  }

 private:
  const int32_t limit_;
  mutable absl::Mutex mutex_;
  MonotonicCondVar changed_;
  int32_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  int32_t peak_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<TimePoint> free_since_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> ended_ ABSL_GUARDED_BY(mutex_);
};

// Writes one record. Its events come one after another, and the record is read after the last.
class Recorder final : public CallObserver {
 public:
  Recorder(RequestRecord& record, size_t index, TimePoint start, Slots& slots, RunCounts& counts)
      : record_(record), index_(index), start_(start), slots_(slots), counts_(counts) {
    constexpr int32_t kMostReserved = 4096;
    record_.chunks.reserve(static_cast<size_t>(std::clamp(record.wanted_tokens, 1, kMostReserved)));
  }

  void OnTokens(TimePoint at, int32_t tokens) override {
    record_.chunks.push_back({at - start_, tokens});
    counts_.tokens += tokens;
  }
  void OnEnd(TimePoint at, CallEnd end) override {
    record_.ended = at - start_;
    record_.end = std::move(end);
    if (!record_.end.status.ok() && !absl::IsCancelled(record_.end.status)) ++counts_.failed;
    ++counts_.ended;
    slots_.Free(index_);
  }

 private:
  RequestRecord& record_;
  const size_t index_;
  const TimePoint start_;
  Slots& slots_;
  RunCounts& counts_;
};

// The sending thread of one run.
class Sender {
 public:
  Sender(const Schedule& schedule, const RunOptions& options, Backend& backend, RunCounts& counts)
      : schedule_(schedule),
        options_(options),
        backend_(backend),
        counts_(counts),
        slots_(options.max_concurrency),
        calls_(schedule.requests.size()) {
    result_.records.resize(schedule.requests.size());
  }

  RunResult Run() {
    start_ = Now();
    for (size_t i = 0; i < schedule_.requests.size(); ++i) Send(i);
    Drain();
    for (const RequestRecord& record : result_.records) {
      result_.length = std::max(result_.length, record.ended);
    }
    result_.peak_concurrency = slots_.peak();
    return std::move(result_);
  }

 private:
  // The call is made before its time, so that sending it is all that is left to do then.
  void Send(size_t index) {
    const ScheduledRequest& request = schedule_.requests[index];
    RequestRecord& record = result_.records[index];
    record.id = options_.id_prefix + "-" + std::to_string(index);
    record.prompt_tokens = request.prompt_tokens();
    record.wanted_tokens = request.output_tokens;
    recorders_.push_back(std::make_unique<Recorder>(record, index, start_, slots_, counts_));
    calls_[index] = backend_.Prepare(request, record.id, *recorders_.back());
    if (!options_.closed_loop) AwaitArrival(start_ + request.at);
    AwaitSlot();
    const Duration free_since = slots_.Take() - start_;
    record.scheduled = options_.closed_loop ? std::max(free_since, Duration::zero()) : request.at;
    record.due = std::max(record.scheduled, free_since);
    const TimePoint now = Now();
    record.sent = now - start_;
    calls_[index]->Start();
    ++counts_.sent;
    if (request.cancel_after) cancellations_.push({now + *request.cancel_after, index});
  }

  void AwaitArrival(TimePoint time) {
    while (Now() < time) {
      CancelDue();
      ReleaseEnded();
      slots_.WaitUntil(std::min(time, NextCancellation()));
    }
  }

  void AwaitSlot() {
    while (!slots_.AwaitFree(NextCancellation())) CancelDue();
    ReleaseEnded();
  }

  void Drain() {
    const TimePoint deadline = Now() + options_.drain_timeout;
    while (!slots_.AwaitIdle(std::min(deadline, NextCancellation())) && Now() < deadline) {
      CancelDue();
    }
    ReleaseEnded();
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i] == nullptr) continue;
      result_.records[i].abandoned = true;
      calls_[i]->Cancel();
    }
    slots_.AwaitIdle(kNoDeadline);
  }

  TimePoint NextCancellation() const {
    return cancellations_.empty() ? kNoDeadline : cancellations_.top().first;
  }

  void CancelDue() {
    while (NextCancellation() <= Now()) {
      const size_t index = cancellations_.top().second;
      cancellations_.pop();
      if (calls_[index] == nullptr) continue;
      result_.records[index].cancel_planned = true;
      calls_[index]->Cancel();
    }
  }

  void ReleaseEnded() {
    for (const size_t index : slots_.TakeEnded()) calls_[index].reset();
  }

  using Cancellation = std::pair<TimePoint, size_t>;

  const Schedule& schedule_;
  const RunOptions& options_;
  Backend& backend_;
  RunCounts& counts_;
  Slots slots_;
  TimePoint start_{};
  std::vector<std::unique_ptr<Recorder>> recorders_;
  std::vector<std::unique_ptr<Call>> calls_;  // those not known to have ended
  std::priority_queue<Cancellation, std::vector<Cancellation>, std::greater<>> cancellations_;
  RunResult result_;
};

// Makes the calling thread wake up in time while this lives: the kernel would let it sleep 50 us
// longer than asked, and on a busy machine it would wait until others have used up their share of a
// core. Real-time priority needs a right (CAP_SYS_NICE) that the process may lack; the thread then
// runs without it. Threads that are started meanwhile do not inherit it.
class PunctualThread {
 public:
  PunctualThread() : slack_ns_(prctl(PR_GET_TIMERSLACK)), policy_(sched_getscheduler(kThisThread)) {
    constexpr unsigned long kSlackNs = 1000;
    prctl(PR_SET_TIMERSLACK, kSlackNs);
    sched_getparam(kThisThread, &parameters_);
    sched_param lowest{};
    lowest.sched_priority = sched_get_priority_min(SCHED_FIFO);
    sched_setscheduler(kThisThread, SCHED_FIFO | SCHED_RESET_ON_FORK, &lowest);
  }
  ~PunctualThread() {
    if (slack_ns_ > 0) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack_ns_));
    if (policy_ >= 0) sched_setscheduler(kThisThread, policy_, &parameters_);
  }
  PunctualThread(const PunctualThread&) = delete;
  PunctualThread& operator=(const PunctualThread&) = delete;

 private:
  static constexpr pid_t kThisThread = 0;
  const int slack_ns_;
  const int policy_;
  sched_param parameters_{};
};

}  // namespace

RunResult Run(const Schedule& schedule, const RunOptions& options, Backend& backend,
              RunCounts& counts) {
  const PunctualThread punctual;
  return Sender(schedule, options, backend, counts).Run();
}

}  // namespace tandem::loadgen
