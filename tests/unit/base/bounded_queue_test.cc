#include "base/bounded_queue.h"

#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::bounded_queue_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(BoundedQueue, KeepsTheOrder) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_EQ(queue.size(), 2U);
  EXPECT_THAT(queue.Drain(), ElementsAre(1, 2));
  EXPECT_THAT(queue.Drain(), IsEmpty());
}

TEST(BoundedQueue, AFullQueueRefusesAndLeavesTheItem) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  auto item = std::make_unique<int>(2);
  EXPECT_FALSE(queue.TryPush(std::move(item)));
  ASSERT_NE(item, nullptr);
  EXPECT_EQ(*item, 2);
  queue.Drain();
  EXPECT_TRUE(queue.TryPush(std::move(item)));
}

TEST(BoundedQueue, PushAlwaysGoesPastTheCapacity) {
  BoundedQueue<int> queue(1);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.PushAlways(2));
  EXPECT_FALSE(queue.TryPush(3));
  EXPECT_THAT(queue.Drain(), ElementsAre(1, 2));
}

TEST(BoundedQueue, ClosedTakesNothingMoreAndStillDrains) {
  BoundedQueue<int> queue(4);
  EXPECT_TRUE(queue.TryPush(1));
  queue.Close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.TryPush(2));
  EXPECT_FALSE(queue.PushAlways(3));
  EXPECT_THAT(queue.WaitAndDrain(kNoDeadline), ElementsAre(1));
  EXPECT_THAT(queue.WaitAndDrain(kNoDeadline), IsEmpty());
}

TEST(BoundedQueue, AWaitEndsAtItsDeadline) {
  BoundedQueue<int> queue(4);
  EXPECT_THAT(queue.WaitAndDrain(std::chrono::steady_clock::now()), IsEmpty());
}

TEST(BoundedQueue, AWaitEndsWithAMessageOrWithClose) {
  BoundedQueue<int> queue(4);
  std::thread producer([&queue] { EXPECT_TRUE(queue.TryPush(7)); });
  EXPECT_THAT(queue.WaitAndDrain(kNoDeadline), ElementsAre(7));
  producer.join();
  std::thread closer([&queue] { queue.Close(); });
  EXPECT_THAT(queue.WaitAndDrain(kNoDeadline), IsEmpty());
  closer.join();
}

TEST(BoundedQueue, NothingIsLostBetweenThreads) {
  constexpr int kProducers = 4;
  constexpr int kEach = 2'000;
  BoundedQueue<int> queue(16);
  std::vector<std::thread> producers;
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&queue, p] {
      for (int i = 0; i < kEach; ++i) {
        while (!queue.TryPush(p * kEach + i)) std::this_thread::yield();
      }
    });
  }
  std::vector<int> last(kProducers, -1);
  int received = 0;
  while (received < kProducers * kEach) {
    for (const int item : queue.WaitAndDrain(kNoDeadline)) {
      EXPECT_GT(item % kEach, last[item / kEach]) << "out of order";
      last[item / kEach] = item % kEach;
      ++received;
    }
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(queue.size(), 0U);
}

// An item whose move, which is within the queue's lock, hangs until it is told otherwise.
struct Hanging {
  explicit Hanging(absl::Notification& go_on) : go_on(&go_on) {}
  Hanging(Hanging&& other) noexcept : moving(other.moving), go_on(other.go_on) {
    if (moving != nullptr) moving->Notify();
    if (go_on != nullptr) go_on->WaitForNotification();
  }

  absl::Notification* moving = nullptr;
  absl::Notification* go_on = nullptr;
};

TEST(BoundedQueue, ItsSizeIsKnownWhileAThreadHangsWithItsLock) {
  BoundedQueue<Hanging> queue(4);
  absl::Notification moving;
  absl::Notification go_on;
  std::thread hangs([&] {
    Hanging item(go_on);
    item.moving = &moving;
    EXPECT_TRUE(queue.TryPush(std::move(item)));
  });
  moving.WaitForNotification();
  EXPECT_EQ(queue.size(), 0u);
  go_on.Notify();
  hangs.join();
  EXPECT_EQ(queue.size(), 1u);
}

}  // namespace
}  // namespace tandem::bounded_queue_test
