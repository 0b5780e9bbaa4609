#include "base/thread_pool.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::thread_pool_test {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {
 protected:
  ThreadPool pool_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 4));

TEST_P(ThreadPoolTest, CountsTheCaller) { EXPECT_EQ(pool_.num_threads(), GetParam()); }

TEST_P(ThreadPoolTest, CallsEachIndexOnceOnAThreadOfThePool) {
  for (int64_t count : {0, 1, 2, 3, 7, 64, 1000}) {
    std::vector<std::atomic<int>> calls(count);
    std::atomic<bool> thread_in_range = true;
    pool_.ParallelFor(count, [&](int64_t index, int thread) {
      calls[index].fetch_add(1);
      if (thread < 0 || thread >= GetParam()) thread_in_range = false;
    });
    for (int64_t i = 0; i < count; ++i) EXPECT_EQ(calls[i], 1) << "index " << i << " of " << count;
    EXPECT_TRUE(thread_in_range);
  }
}

// Plain writes of one loop are read by other threads in the next one and by the caller after it.
TEST_P(ThreadPoolTest, LoopsSeeWhatEarlierLoopsWrote) {
  constexpr int64_t kCount = 16;
  constexpr int kLoops = 20000;
  std::vector<int64_t> from(kCount), to(kCount);
  std::iota(from.begin(), from.end(), 0);
  for (int loop = 0; loop < kLoops; ++loop) {
    pool_.ParallelFor(kCount, [&](int64_t i, int) { to[i] = from[(i + 1) % kCount] + 1; });
    from.swap(to);
  }
  for (int64_t i = 0; i < kCount; ++i) EXPECT_EQ(from[i], (i + kLoops) % kCount + kLoops);
}

// Each of as many indices as threads waits for all others: possible only if all threads take part.
TEST_P(ThreadPoolTest, AllThreadsWorkAtOnce) {
  const int num_threads = GetParam();
  std::mutex mutex;
  std::condition_variable all_arrived;
  int arrived = 0;
  std::vector<int> thread_of(num_threads, -1);
  pool_.ParallelFor(num_threads, [&](int64_t index, int thread) {
    std::unique_lock lock(mutex);
    thread_of[index] = thread;
    if (++arrived == num_threads) all_arrived.notify_all();
    all_arrived.wait(lock, [&] { return arrived == num_threads; });
  });
  std::sort(thread_of.begin(), thread_of.end());
  for (int i = 0; i < num_threads; ++i) EXPECT_EQ(thread_of[i], i);
}

TEST_P(ThreadPoolTest, HandsOutIndicesInRisingOrder) {
  std::vector<std::vector<int64_t>> taken(GetParam());
  pool_.ParallelFor(1000, [&](int64_t index, int thread) { taken[thread].push_back(index); });
  for (const auto& indices : taken) EXPECT_TRUE(std::is_sorted(indices.begin(), indices.end()));
}

int64_t CpuMicroseconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto us = [](timeval time) { return int64_t{time.tv_sec} * 1'000'000 + time.tv_usec; };
  return us(usage.ru_utime) + us(usage.ru_stime);
}

// The wait is what is measured: CPU time of the whole process while its only other thread blocks.
TEST_P(ThreadPoolTest, IdlePoolUsesNoCpu) {
  pool_.ParallelFor(GetParam(), [](int64_t, int) {});
  const int64_t before_us = CpuMicroseconds();
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock lock(mutex);
  constexpr std::chrono::milliseconds kIdle{200};
  never.wait_for(lock, kIdle, [] { return false; });
  const int64_t used_us = CpuMicroseconds() - before_us;
  EXPECT_LT(used_us, 10'000) << "of " << kIdle.count() << " ms idle";
}

}  // namespace
}  // namespace tandem::thread_pool_test
