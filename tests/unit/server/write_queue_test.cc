#include "server/services/write_queue.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace tandem::write_queue_test {
namespace {

using Queue = WriteQueue<std::string>;
using Next = Queue::Next;

constexpr size_t kLimit = 10;

Next PushLive(Queue& queue, const std::string& text) {
  return queue.Push(text, text.size(), Pace::kLive);
}

TEST(WriteQueueTest, WritesOneMessageAfterTheOther) {
  Queue queue(kLimit, nullptr);
  EXPECT_FALSE(queue.HasUnwritten());
  EXPECT_EQ(PushLive(queue, "a"), Next::kWrite);
  EXPECT_EQ(PushLive(queue, "b"), Next::kNothing);
  EXPECT_EQ(queue.current(), "a");
  EXPECT_TRUE(queue.HasUnwritten());
  EXPECT_EQ(queue.OnWritten(true), Next::kWrite);
  EXPECT_EQ(queue.current(), "b");
  EXPECT_EQ(queue.OnWritten(true), Next::kNothing);
  EXPECT_FALSE(queue.HasUnwritten());
  EXPECT_EQ(PushLive(queue, "c"), Next::kWrite);
}

TEST(WriteQueueTest, ALiveMessageIsRefusedWhenTheQueueIsFull) {
  Queue queue(kLimit, nullptr);
  EXPECT_EQ(PushLive(queue, std::string(100, 'x')), Next::kWrite) << "nothing waits";
  EXPECT_EQ(PushLive(queue, std::string(kLimit, 'y')), Next::kNothing);
  EXPECT_EQ(PushLive(queue, "z"), Next::kFull);
  EXPECT_EQ(queue.Push("whole", 5, Pace::kWhole), Next::kNothing);
  EXPECT_EQ(queue.OnWritten(true), Next::kWrite);
  EXPECT_EQ(PushLive(queue, "z"), Next::kNothing);
}

TEST(WriteQueueTest, AWholeMessageIsRefusedWhenAllQueuesHoldTooMuch) {
  AnswerBuffers all(8);
  Queue one(kLimit, &all);
  Queue other(kLimit, &all);
  EXPECT_EQ(one.Push("1", 1, Pace::kWhole), Next::kWrite);
  EXPECT_EQ(other.Push("2", 1, Pace::kWhole), Next::kWrite);
  EXPECT_EQ(one.Push("12345678", 8, Pace::kWhole), Next::kNothing);
  EXPECT_EQ(other.Push("3", 1, Pace::kWhole), Next::kFull);
  EXPECT_EQ(PushLive(other, "4"), Next::kNothing) << "it has a limit of its own";
  EXPECT_EQ(all.Use().bytes(), 9u);
  EXPECT_EQ(all.Use().refused(), 1u);
  EXPECT_EQ(one.OnWritten(true), Next::kWrite);
  EXPECT_EQ(all.Use().bytes(), 1u);
}

TEST(WriteQueueTest, CloseWritesTheRestAndAbortDropsIt) {
  for (const bool close : {true, false}) {
    Queue queue(kLimit, nullptr);
    EXPECT_EQ(PushLive(queue, "a"), Next::kWrite);
    EXPECT_EQ(PushLive(queue, "b"), Next::kNothing);
    EXPECT_EQ(close ? queue.Close() : queue.Abort(), Next::kNothing);
    if (close) {
      EXPECT_EQ(queue.OnWritten(true), Next::kWrite);
    }
    EXPECT_EQ(queue.OnWritten(true), Next::kFinish);
  }
}

TEST(WriteQueueTest, AnIdleQueueFinishesAtOnce) {
  EXPECT_EQ(Queue(kLimit, nullptr).Close(), Next::kFinish);
  EXPECT_EQ(Queue(kLimit, nullptr).Abort(), Next::kFinish);
}

TEST(WriteQueueTest, AFailedWriteDropsTheRest) {
  AnswerBuffers all(8);
  Queue queue(kLimit, &all);
  EXPECT_EQ(PushLive(queue, "a"), Next::kWrite);
  EXPECT_EQ(PushLive(queue, "b"), Next::kNothing);
  EXPECT_EQ(queue.OnWritten(false), Next::kNothing);
  EXPECT_EQ(all.Use().bytes(), 0u);
  EXPECT_EQ(queue.Close(), Next::kFinish);
}

TEST(WriteQueueTest, LastWordsFollowTheWriteInProgress) {
  AnswerBuffers all(8);
  Queue queue(kLimit, &all);
  EXPECT_EQ(PushLive(queue, "a"), Next::kWrite);
  EXPECT_EQ(PushLive(queue, "0123456789"), Next::kNothing);
  queue.Drop();
  EXPECT_EQ(queue.CloseWith("why", 3), Next::kNothing);
  EXPECT_EQ(all.Use().bytes(), 3u);
  EXPECT_EQ(queue.OnWritten(true), Next::kWrite);
  EXPECT_EQ(queue.current(), "why");
  EXPECT_EQ(queue.OnWritten(true), Next::kFinish);
}

TEST(WriteQueueTest, LastWordsOfAnIdleQueueAreWrittenAtOnce) {
  Queue queue(kLimit, nullptr);
  EXPECT_EQ(queue.CloseWith("end", 3), Next::kWrite);
  EXPECT_EQ(queue.current(), "end");
  EXPECT_EQ(queue.OnWritten(true), Next::kFinish);
}

TEST(WriteQueueTest, LastWordsAreTakenByAFullQueue) {
  Queue queue(kLimit, nullptr);
  EXPECT_EQ(PushLive(queue, "a"), Next::kWrite);
  EXPECT_EQ(PushLive(queue, std::string(kLimit, 'b')), Next::kNothing);
  EXPECT_EQ(queue.CloseWith("end", 3), Next::kNothing);
  EXPECT_EQ(queue.OnWritten(true), Next::kWrite);
  EXPECT_EQ(queue.OnWritten(true), Next::kWrite);
  EXPECT_EQ(queue.current(), "end");
}

TEST(WriteQueueTest, WhatIsDroppedWithTheQueueIsNotCountedAnyMore) {
  AnswerBuffers all(8);
  {
    Queue queue(kLimit, &all);
    EXPECT_EQ(PushLive(queue, "a"), Next::kWrite);
    EXPECT_EQ(PushLive(queue, "b"), Next::kNothing);
    EXPECT_EQ(all.Use().bytes(), 1u);
  }
  EXPECT_EQ(all.Use().bytes(), 0u);
}

TEST(WriteQueueTest, AnAbandonedQueueTakesNothingAndOutlivesTheCount) {
  auto all = std::make_unique<AnswerBuffers>(8);
  Queue writing(kLimit, all.get());
  Queue idle(kLimit, all.get());
  EXPECT_EQ(PushLive(writing, "a"), Next::kWrite);
  EXPECT_EQ(PushLive(writing, "b"), Next::kNothing);
  for (Queue* queue : {&writing, &idle}) {
    queue->Abandon();
    EXPECT_EQ(all->Use().bytes(), 0u);
    EXPECT_EQ(queue->Push("c", 1, Pace::kWhole), Next::kNothing);
    EXPECT_EQ(queue->CloseWith("d", 1), Next::kNothing);
    EXPECT_EQ(all->Use().bytes(), 0u);
  }
  EXPECT_EQ(writing.current(), "a") << "the system may still read it";
  all.reset();
}

}  // namespace
}  // namespace tandem::write_queue_test
