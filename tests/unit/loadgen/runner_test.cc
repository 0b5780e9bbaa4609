#include "bench/serving/runner.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <set>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "tests/support/scripted_backend.h"

namespace tandem::loadgen::runner_test {
namespace {

using std::chrono::milliseconds;

constexpr int32_t kTokens = 3;

Schedule EvenSchedule(int count, Duration gap) {
  Schedule schedule;
  for (int i = 0; i < count; ++i) {
    ScheduledRequest request;
    request.at = gap * i;
    request.prompt = {{static_cast<uint64_t>(i), 4}};
    request.output_tokens = kTokens;
    schedule.requests.push_back(request);
  }
  return schedule;
}

RunResult RunAgainst(ScriptedBackend& backend, const Schedule& schedule,
                     const RunOptions& options = {}) {
  RunCounts counts;
  RunResult result = Run(schedule, options, backend, counts);
  EXPECT_EQ(counts.sent, static_cast<int64_t>(schedule.requests.size()));
  EXPECT_EQ(counts.ended, counts.sent);
  return result;
}

// Answers calls from a thread of its own.
class Answerer {
 public:
  ~Answerer() {
    for (std::thread& thread : threads_) thread.join();
  }
  void Do(std::function<void()> answer) { threads_.emplace_back(std::move(answer)); }

 private:
  std::vector<std::thread> threads_;
};

TEST(RunnerTest, EveryRequestIsSentOnceAndNoneBeforeItsTime) {
  std::multiset<size_t> started;
  ScriptedBackend backend([&](size_t number, CallObserver& observer) {
    started.insert(number);
    ScriptedBackend::AnswerWhole(observer, kTokens);
  });
  const Schedule schedule = EvenSchedule(50, milliseconds(1));
  const RunResult result = RunAgainst(backend, schedule);
  EXPECT_EQ(started.size(), 50u);
  ASSERT_EQ(result.records.size(), 50u);
  for (size_t i = 0; i < 50; ++i) {
    const RequestRecord& record = result.records[i];
    EXPECT_EQ(started.count(i), 1u);
    EXPECT_EQ(record.scheduled, schedule.requests[i].at);
    EXPECT_EQ(record.due, record.scheduled);
    EXPECT_GE(record.sent, record.scheduled);
    EXPECT_GE(record.ended, record.sent);
    EXPECT_EQ(record.chunks.size(), size_t{kTokens});
    EXPECT_EQ(record.prompt_tokens, 4);
    EXPECT_EQ(record.id, "bench-" + std::to_string(i));
    EXPECT_LE(record.ended, result.length);
  }
}

// An open loop: the requests after the one that is not answered are sent in spite of it.
TEST(RunnerTest, AnAnswerThatDoesNotComeHoldsUpNoOtherRequest) {
  std::promise<CallObserver*> first;
  std::promise<void> all_sent;
  ScriptedBackend backend([&](size_t number, CallObserver& observer) {
    if (number == 0) {
      first.set_value(&observer);
      return;
    }
    ScriptedBackend::AnswerWhole(observer, kTokens);
    if (number == 9) all_sent.set_value();
  });
  std::thread server([&] {
    all_sent.get_future().wait();
    ScriptedBackend::AnswerWhole(*first.get_future().get(), kTokens);
  });
  const RunResult result = RunAgainst(backend, EvenSchedule(10, milliseconds(1)));
  server.join();
  EXPECT_EQ(result.peak_concurrency, 2);
  EXPECT_GT(result.records[0].ended, result.records[9].sent);
}

// One slot, which the first request holds for 100 ms while others arrive. Their latency from the
// send does not know of it, the one from their arrival does: no coordinated omission.
TEST(RunnerTest, AStallShowsInTheLatencyFromTheArrivalAndNotInThatFromTheSend) {
  constexpr milliseconds kStall(100);
  Answerer answerer;
  ScriptedBackend backend([&](size_t number, CallObserver& observer) {
    if (number > 0) return ScriptedBackend::AnswerWhole(observer, kTokens);
    answerer.Do([&observer, stalled_until = ScriptedBackend::Now() + kStall] {
      std::this_thread::sleep_until(stalled_until);
      ScriptedBackend::AnswerWhole(observer, kTokens);
    });
  });
  const RunResult result =
      RunAgainst(backend, EvenSchedule(10, milliseconds(2)), {.max_concurrency = 1});
  const Duration resumed = result.records[0].ended;
  EXPECT_GE(resumed, kStall);
  for (size_t i = 1; i < 10; ++i) {
    const RequestRecord& record = result.records[i];
    const RequestLatency latency = LatencyOf(record);
    EXPECT_GE(record.sent, resumed);
    EXPECT_GE(latency.scheduled_e2e, ToMilliseconds(resumed - record.scheduled));
    EXPECT_GE(*latency.scheduled_ttft, ToMilliseconds(resumed - record.scheduled));
    EXPECT_GE(latency.client_queue, ToMilliseconds(resumed - record.scheduled));
    // The stall is in it in no part: everything that it measures came after.
    EXPECT_LE(latency.e2e, ToMilliseconds(record.ended - resumed));
    EXPECT_NEAR(latency.client_queue + latency.lag + latency.e2e, latency.scheduled_e2e, 1e-6);
  }
}

TEST(RunnerTest, NeverMoreRequestsThanAllowedAreUnderWay) {
  constexpr int kLimit = 3;
  std::atomic<int> under_way = 0;
  std::atomic<int> most = 0;
  Answerer answerer;
  ScriptedBackend backend([&](size_t, CallObserver& observer) {
    const int now = ++under_way;
    most = std::max(most.load(), now);
    answerer.Do([&] {
      --under_way;
      ScriptedBackend::AnswerWhole(observer, kTokens);
    });
  });
  const RunResult result = RunAgainst(backend, EvenSchedule(40, Duration::zero()),
                                      {.max_concurrency = kLimit, .closed_loop = true});
  EXPECT_LE(most, kLimit);
  EXPECT_LE(result.peak_concurrency, kLimit);
}

// A request is due when a slot became free, so that a closed loop has no queue at the client.
TEST(RunnerTest, AClosedLoopSchedulesARequestWhenASlotBecomesFree) {
  Answerer answerer;
  ScriptedBackend backend([&](size_t, CallObserver& observer) {
    answerer.Do([&observer] { ScriptedBackend::AnswerWhole(observer, kTokens); });
  });
  const RunResult result = RunAgainst(backend, EvenSchedule(20, std::chrono::hours(1)),
                                      {.max_concurrency = 2, .closed_loop = true});
  EXPECT_EQ(result.records[0].scheduled, Duration::zero());
  EXPECT_EQ(result.records[1].scheduled, Duration::zero());
  std::vector<Duration> ends;
  for (const RequestRecord& record : result.records) ends.push_back(record.ended);
  std::sort(ends.begin(), ends.end());
  for (size_t i = 2; i < 20; ++i) {
    EXPECT_EQ(LatencyOf(result.records[i]).client_queue, 0);
    // The slot of request i is the one that the end number i - 2 made free.
    EXPECT_GE(result.records[i].scheduled, ends[i - 2]);
  }
}

TEST(RunnerTest, RequestsAreCancelledAfterTheirDelay) {
  absl::Mutex mutex;
  std::vector<size_t> cancelled;
  ScriptedBackend backend(
      [](size_t number, CallObserver& observer) {
        if (number % 2 == 1) ScriptedBackend::AnswerWhole(observer, kTokens);
      },
      [&](size_t number, CallObserver& observer) {
        absl::MutexLock lock(&mutex);
        cancelled.push_back(number);
        observer.OnEnd(ScriptedBackend::Now(), {.status = absl::CancelledError("by the client")});
      });
  Schedule schedule = EvenSchedule(10, milliseconds(1));
  for (size_t i = 0; i < 10; i += 2) schedule.requests[i].cancel_after = milliseconds(5);
  const RunResult result = RunAgainst(backend, schedule);
  EXPECT_EQ(cancelled, (std::vector<size_t>{0, 2, 4, 6, 8}));
  for (size_t i = 0; i < 10; ++i) {
    const RequestRecord& record = result.records[i];
    EXPECT_EQ(Judge(record, true), i % 2 == 0 ? Verdict::kCancelled : Verdict::kComplete);
    if (i % 2 == 0) {
      EXPECT_GE(record.ended - record.sent, milliseconds(5));
    }
  }
}

TEST(RunnerTest, RequestsThatAreStillRunningAfterTheDrainAreCancelledAndHaveFailed) {
  ScriptedBackend backend(
      [](size_t number, CallObserver& observer) {
        if (number != 1) ScriptedBackend::AnswerWhole(observer, kTokens);
      },
      [](size_t, CallObserver& observer) {
        observer.OnEnd(ScriptedBackend::Now(), {.status = absl::CancelledError("by the client")});
      });
  const RunResult result =
      RunAgainst(backend, EvenSchedule(3, milliseconds(1)), {.drain_timeout = milliseconds(20)});
  EXPECT_EQ(Judge(result.records[1], true), Verdict::kFailed);
  EXPECT_NE(WhyNotComplete(result.records[1], true).find("draining"), std::string::npos);
  EXPECT_EQ(Judge(result.records[2], true), Verdict::kComplete);
}

}  // namespace
}  // namespace tandem::loadgen::runner_test
