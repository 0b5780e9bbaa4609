// Which requests become traces, and what their spans say of one another.

#include "tracing/request_trace.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/recording_spans.h"
#include "tracing/tracer.h"

namespace tandem::request_trace_test {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

constexpr TimePoint kStart{std::chrono::hours(1)};

TraceContext Caller(bool sampled) {
  return {.trace_id = {.high = 1, .low = 2}, .span_id = 3, .sampled = sampled, .tracestate = "a=b"};
}

TEST(TracerTest, TheCallersFlagDecidesWhateverTheRatioIs) {
  RecordingSpans spans;
  EXPECT_TRUE(Tracer(0, &spans).Begin(Caller(true))->records());
  const auto unsampled = Tracer(1, &spans).Begin(Caller(false));
  ASSERT_NE(unsampled, nullptr) << "its context is still passed on";
  EXPECT_FALSE(unsampled->records());
  EXPECT_FALSE(unsampled->ContextFor({}).sampled);
  EXPECT_EQ(unsampled->ContextFor({}).span_id, 3u);
}

TEST(TracerTest, WithoutAConsumerContextsArePassedOnAndNoneBegins) {
  const Tracer tracer(1, nullptr);
  EXPECT_EQ(tracer.Begin(std::nullopt), nullptr);
  const auto passed = tracer.Begin(Caller(true));
  ASSERT_NE(passed, nullptr);
  EXPECT_FALSE(passed->records());
  EXPECT_TRUE(passed->ContextFor({}).sampled) << "others may record it";
}

TEST(TracerTest, TheRatioIsTheShareOfTheRequestsThatBecomeTraces) {
  RecordingSpans spans;
  int begun = 0;
  const Tracer tracer(0.25, &spans);
  for (int i = 0; i < 4000; ++i) begun += tracer.Begin(std::nullopt) != nullptr ? 1 : 0;
  EXPECT_GT(begun, 800);  // the expected 1000 less seven standard deviations
  EXPECT_LT(begun, 1200);
  EXPECT_EQ(Tracer(0, &spans).Begin(std::nullopt), nullptr);
  for (int i = 0; i < 100; ++i) EXPECT_NE(Tracer(1, &spans).Begin(std::nullopt), nullptr);
}

TEST(RequestTraceTest, SpansPointToTheirParentsAndTheFirstOneToTheCaller) {
  RecordingSpans spans;
  RequestTrace trace(Caller(true), &spans);
  const auto first = trace.BeginFirst("first", SpanKind::kServer, kStart);
  const auto child = trace.Begin("child", SpanKind::kClient, first, kStart + milliseconds(1));
  EXPECT_EQ(trace.ContextFor(child).span_id, trace.Find(child)->id);
  EXPECT_EQ(trace.ContextFor(child).tracestate, "a=b");
  trace.End(child, kStart + milliseconds(3), absl::UnavailableError("gone"));
  trace.End(child, kStart + milliseconds(9));
  trace.Finish(kStart + milliseconds(5), absl::OkStatus());
  ASSERT_THAT(spans.Names(), ElementsAre("first", "child"));
  EXPECT_EQ(spans.all[0].parent, 3u);
  EXPECT_EQ(spans.all[0].end, kStart + milliseconds(5));
  EXPECT_EQ(spans.all[1].parent, spans.all[0].id);
  EXPECT_EQ(spans.all[1].trace_id, spans.all[0].trace_id);
  EXPECT_EQ(spans.all[1].end, kStart + milliseconds(3)) << "the first end counts";
  EXPECT_EQ(spans.all[1].status.message(), "gone");
}

TEST(RequestTraceTest, SpansThatAreOpenAtTheEndEndThereAndNoneEndsBeforeItBegan) {
  RecordingSpans spans;
  RequestTrace trace(Caller(true), &spans);
  const auto first = trace.BeginFirst("first", SpanKind::kServer, kStart);
  const auto late = trace.Begin("late", SpanKind::kInternal, first, kStart + milliseconds(9));
  trace.End(late, kStart);
  (void)trace.Begin("open", SpanKind::kInternal, first, kStart);
  (void)trace.Begin("early", SpanKind::kInternal, late, kStart);
  trace.Finish(kStart + milliseconds(4), absl::CancelledError("by the client"));
  EXPECT_EQ(spans.Only("early").start, spans.Only("late").start) << "with its parent";
  EXPECT_EQ(spans.Only("open").end, kStart + milliseconds(4));
  EXPECT_EQ(spans.Only("late").end, spans.Only("late").start);
  EXPECT_FALSE(spans.Only("first").status.ok());
  trace.Finish(kStart, absl::OkStatus());
  trace.End(first, kStart);
  EXPECT_EQ(spans.all.size(), 4u) << "nothing comes after the end";
  EXPECT_EQ(trace.BeginFirst("again", SpanKind::kServer, kStart).index,
            RequestTrace::SpanRef::kNone);
}

TEST(RequestTraceTest, SpansBeyondTheBoundAreCountedAndTheirCallsBelongToTheRequest) {
  RecordingSpans spans;
  RequestTrace trace(Caller(true), &spans);
  const auto first = trace.BeginFirst("first", SpanKind::kServer, kStart);
  RequestTrace::SpanRef last;
  for (size_t i = 0; i < RequestTrace::kMaxSpans + 4; ++i) {
    last = trace.Begin("attempt", SpanKind::kInternal, first, kStart);
  }
  EXPECT_EQ(trace.Find(last), nullptr);
  EXPECT_EQ(trace.ContextFor(last).span_id, trace.Find(first)->id);
  trace.Finish(kStart, absl::OkStatus());
  EXPECT_EQ(spans.all.size(), RequestTrace::kMaxSpans);
  const auto* left_out = FindAttribute<int64_t>(spans.all[0], "tandem.spans_left_out");
  ASSERT_NE(left_out, nullptr);
  EXPECT_EQ(*left_out, 5);
}

}  // namespace
}  // namespace tandem::request_trace_test
