// The thread that exports spans, with a receiver that the test plays.

#include "tracing/span_exporter.h"

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::span_exporter_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using Kind = SendResult::Kind;

TimePoint Now() { return std::chrono::steady_clock::now(); }

size_t SpansIn(const std::string& batch) {
  const auto json = ParseJson(batch);
  return json["resourceSpans"][0]["scopeSpans"][0]["spans"].size();
}

// What the receiver does is written down beforehand: the last answer holds for all that follow.
class Receiver {
 public:
  explicit Receiver(std::deque<SendResult> answers = {{}}) : answers_(std::move(answers)) {}

  SendResult Receive(const std::string& batch) {
    absl::MutexLock lock(&mutex_);
    asked_.push_back(Now());
    spans_.push_back(SpansIn(batch));
    mutex_.Await(absl::Condition(&open_));
    const SendResult answer = answers_.front();
    if (answers_.size() > 1) answers_.pop_front();
    return answer;
  }
  void SetOpen(bool open) {
    absl::MutexLock lock(&mutex_);
    open_ = open;
  }
  // Until it was asked so often.
  void AwaitAsked(size_t times) {
    const auto enough = [this, times]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return asked_.size() >= times;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&enough));
  }
  std::vector<TimePoint> asked() {
    absl::MutexLock lock(&mutex_);
    return asked_;
  }
  std::vector<size_t> spans() {
    absl::MutexLock lock(&mutex_);
    return spans_;
  }

 private:
  absl::Mutex mutex_;
  std::deque<SendResult> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<TimePoint> asked_ ABSL_GUARDED_BY(mutex_);
  std::vector<size_t> spans_ ABSL_GUARDED_BY(mutex_);  // of each batch
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
};

class ToReceiver final : public SpanTransport {
 public:
  explicit ToReceiver(Receiver& receiver) : receiver_(receiver) {}
  SendResult Send(const std::string& batch, TimePoint) override { return receiver_.Receive(batch); }
  void HurryUntil(TimePoint) override { receiver_.SetOpen(true); }

 private:
  Receiver& receiver_;
};

SpanExporterOptions Quick() {
  return {.max_queued_spans = 8,
          .max_batch_spans = 4,
          .max_delay = Duration{},
          .first_back_off = milliseconds(1),
          .most_back_off = milliseconds(2),
          .give_up_after = minutes(1)};
}

std::unique_ptr<SpanExporter> NewExporter(Receiver& receiver,
                                          const SpanExporterOptions& options = Quick()) {
  return std::make_unique<SpanExporter>(options, TraceResource(),
                                        std::make_unique<ToReceiver>(receiver));
}

// The spans of one request.
std::vector<Span> Spans(size_t count) { return std::vector<Span>(count); }

TEST(SpanExporterTest, WhatIsQueuedIsExportedBeforeTheEnd) {
  Receiver receiver;
  const auto exporter = NewExporter(receiver);
  exporter->Take(Spans(3));
  receiver.AwaitAsked(1);
  exporter->Take(Spans(2));
  exporter->Shutdown(Now() + minutes(1));
  EXPECT_EQ(exporter->use().exported, 5u);
  EXPECT_EQ(exporter->use().dropped_queue_full + exporter->use().dropped_not_taken, 0u);
  exporter->Take(Spans(1));
  EXPECT_EQ(exporter->use().dropped_queue_full, 1u) << "it came after the end";
}

TEST(SpanExporterTest, RequestsThatEndTogetherShareABatchUpToItsBound) {
  Receiver receiver;
  receiver.SetOpen(false);
  const auto exporter = NewExporter(receiver);
  exporter->Take(Spans(1));
  receiver.AwaitAsked(1);
  for (int i = 0; i < 4; ++i) exporter->Take(Spans(2));
  exporter->Shutdown(Now() + minutes(1));
  EXPECT_THAT(receiver.spans(), testing::ElementsAre(1, 4, 4));
}

TEST(SpanExporterTest, AReceiverThatStandsStillCostsSpansAndNeverTheCaller) {
  Receiver receiver;
  receiver.SetOpen(false);
  const auto exporter = NewExporter(receiver);
  exporter->Take(Spans(1));
  receiver.AwaitAsked(1);  // from now on its thread stands still
  for (int i = 0; i < 6; ++i) exporter->Take(Spans(2));
  EXPECT_EQ(exporter->use().dropped_queue_full, 4u) << "eight spans fit into the queue";
  receiver.SetOpen(true);
  exporter->Shutdown(Now() + minutes(1));
  EXPECT_EQ(exporter->use().exported, 9u);
}

TEST(SpanExporterTest, ABatchIsSentAgainNotEarlierThanTheReceiverSays) {
  const Duration wait = milliseconds(30);
  Receiver receiver({{.kind = Kind::kRetry, .retry_after = wait, .why = "503"},
                     {.kind = Kind::kRetry, .why = "no answer"},
                     {}});
  const auto exporter = NewExporter(receiver);
  exporter->Take(Spans(2));
  receiver.AwaitAsked(3);
  exporter->Shutdown(Now() + minutes(1));
  EXPECT_GE(receiver.asked()[1] - receiver.asked()[0], wait);
  EXPECT_EQ(exporter->use().exported, 2u);
  EXPECT_EQ(exporter->use().dropped_not_taken, 0u);
}

TEST(SpanExporterTest, ABatchThatIsRefusedIsDroppedAndTheNextOneIsSent) {
  Receiver receiver({{.kind = Kind::kRefused, .why = "400"}, {}});
  const auto exporter = NewExporter(receiver);
  exporter->Take(Spans(2));
  receiver.AwaitAsked(1);
  exporter->Take(Spans(3));
  exporter->Shutdown(Now() + minutes(1));
  EXPECT_THAT(receiver.spans(), testing::ElementsAre(2, 3));
  EXPECT_EQ(exporter->use().dropped_not_taken, 2u);
  EXPECT_EQ(exporter->use().exported, 3u);
}

TEST(SpanExporterTest, ABatchIsGivenUpAfterAWhileAndTheReceiverIsStillNotAskedTooEarly) {
  const Duration wait = milliseconds(30);
  Receiver receiver({{.kind = Kind::kRetry, .retry_after = wait, .why = "503"}, {}});
  SpanExporterOptions options = Quick();
  options.give_up_after = milliseconds(10);
  const auto exporter = NewExporter(receiver, options);
  exporter->Take(Spans(1));
  receiver.AwaitAsked(1);
  exporter->Take(Spans(2));
  receiver.AwaitAsked(2);
  exporter->Shutdown(Now() + minutes(1));
  EXPECT_GE(receiver.asked()[1] - receiver.asked()[0], wait);
  EXPECT_EQ(exporter->use().dropped_not_taken, 1u);
  EXPECT_EQ(exporter->use().exported, 2u);
}

TEST(SpanExporterTest, TheEndDoesNotWaitForAReceiverThatWillNotComeBackInTime) {
  Receiver receiver({{.kind = Kind::kRetry, .retry_after = std::chrono::hours(1), .why = "503"}});
  SpanExporterOptions options = Quick();
  options.give_up_after = std::chrono::hours(2);
  const auto exporter = NewExporter(receiver, options);
  exporter->Take(Spans(2));
  receiver.AwaitAsked(1);
  exporter->Shutdown(Now() + minutes(1));  // the test would fail for its time
  EXPECT_EQ(exporter->use().dropped_not_taken, 2u);
  EXPECT_EQ(exporter->use().exported, 0u);
}

}  // namespace
}  // namespace tandem::span_exporter_test
