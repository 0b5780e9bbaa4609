// The spans that a router makes of a request, and what its workers are told of the trace.

#include "router/request/request_spans.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "router/client/traced_worker_client.h"
#include "tests/support/recording_spans.h"
#include "tests/support/router_fixture.h"

namespace tandem::request_spans_test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class RequestSpansTest : public RouterFixture {
 protected:
  RequestSpansTest() { traced_router_.Start(); }

  static TraceContext Caller(bool sampled) {
    return {
        .trace_id = {.high = 7, .low = 8}, .span_id = 9, .sampled = sampled, .tracestate = "a=b"};
  }
  RequestId SubmitTraced(const v1::GenerateRequest& request,
                         const std::optional<TraceContext>& caller = Caller(true)) {
    const auto id = traced_router_.Submit(request, kNoDeadline, stream_, caller);
    EXPECT_TRUE(id.ok()) << id.status();
    loop_.RunReady();
    return id.ok() ? *id : RequestId();
  }
  void Pass(std::chrono::milliseconds time) { clock_.Advance(time); }
  // The prefill worker's KV arrived after moving for this long.
  void HandOff(std::chrono::microseconds took) {
    v1::WorkerEvent event;
    event.mutable_finish()->set_reason(kHandedOff);
    event.mutable_finish()->mutable_kv()->set_raw_bytes(77);
    event.mutable_finish()->mutable_kv()->set_duration_us(took.count());
    Say("prefill p0", event);
    End("prefill p0", absl::OkStatus(), kWorker);
  }
  // Each is within its parent, and all belong to the caller's trace.
  void ExpectOneTree() const {
    for (const Span& span : spans_.all) {
      EXPECT_EQ(span.trace_id, Caller(true).trace_id) << span.name;
      EXPECT_EQ(span.tracestate, "a=b") << span.name;
      EXPECT_LE(span.start, span.end) << span.name;
      if (span.parent == Caller(true).span_id) continue;
      const auto parent = std::ranges::find(spans_.all, span.parent, &Span::id);
      ASSERT_NE(parent, spans_.all.end()) << span.name;
      EXPECT_GE(span.start, parent->start) << span.name;
      EXPECT_LE(span.end, parent->end) << span.name;
    }
  }
  std::string ParentOf(const std::string& name) const {
    const SpanId parent = spans_.Only(name).parent;
    for (const Span& span : spans_.all) {
      if (span.id == parent) return span.name;
    }
    return "";
  }

  RecordingSpans spans_;
  Tracer tracer_{0, &spans_};
  TracedWorkerClient traced_workers_{workers_, clock_};
  RouterParts WithTracer() {
    RouterParts parts = Parts(tokenizer_, traced_workers_);
    parts.tracer = &tracer_;
    return parts;
  }
  Router traced_router_{Options(), WithTracer()};
};

TEST_F(RequestSpansTest, ARequestThatIsHandedOffIsOneTreeBelowItsClientsSpan) {
  SubmitTraced(Ask());
  Pass(std::chrono::milliseconds(2));
  Reserved();
  Pass(std::chrono::milliseconds(3));
  Say("prefill p0", {7});
  Pass(std::chrono::milliseconds(1));
  HandOff(std::chrono::microseconds(2500));
  Say("decode d0", {8, 9});
  Pass(std::chrono::milliseconds(5));
  Say("decode d0", {10});
  Finish("decode d0", kLength);
  ASSERT_TRUE(stream_.end && stream_.end->ok());
  EXPECT_THAT(spans_.Names(), UnorderedElementsAre("generate sample", "route", "attempt", "reserve",
                                                   "prefill", "hand_off", "decode"));
  ExpectOneTree();
  EXPECT_EQ(spans_.Only("generate sample").parent, 9u);
  EXPECT_EQ(spans_.Only("generate sample").kind, SpanKind::kServer);
  EXPECT_EQ(ParentOf("attempt"), "generate sample");
  for (const char* name : {"reserve", "prefill", "hand_off", "decode"}) {
    EXPECT_EQ(ParentOf(name), "attempt") << name;
  }
  const Span& handoff = spans_.Only("hand_off");
  EXPECT_EQ(handoff.end - handoff.start, std::chrono::microseconds(2500));
  const Span& reserve = spans_.Only("reserve");
  EXPECT_EQ(reserve.end - reserve.start, std::chrono::milliseconds(2));
}

TEST_F(RequestSpansTest, TheSpanOfARequestSaysWhatItUsedAndWhereItRan) {
  SubmitTraced(Ask());
  Reserved();
  Pass(std::chrono::milliseconds(4));
  Say("prefill p0", {7});
  HandOff(std::chrono::microseconds(1));
  Say("decode d0", {8, 9, 10});
  Finish("decode d0", kLength);
  const Span& request = spans_.Only("generate sample");
  const auto text = [&request](const char* key) {
    const auto* found = FindAttribute<std::string>(request, key);
    return found == nullptr ? "" : *found;
  };
  const auto number = [&request](const char* key) {
    const auto* found = FindAttribute<int64_t>(request, key);
    return found == nullptr ? -1 : *found;
  };
  EXPECT_EQ(text("gen_ai.request.model"), "sample");
  EXPECT_EQ(number("gen_ai.usage.input_tokens"), 3);
  EXPECT_EQ(number("gen_ai.usage.output_tokens"), 4);
  EXPECT_EQ(text("tandem.policy"), "least-loaded");
  EXPECT_EQ(text("tandem.route"), "disaggregated");
  EXPECT_EQ(text("tandem.worker.prefill"), "p0");
  EXPECT_EQ(text("tandem.worker.decode"), "d0");
  const auto* reasons =
      FindAttribute<std::vector<std::string>>(request, "gen_ai.response.finish_reasons");
  ASSERT_NE(reasons, nullptr);
  EXPECT_THAT(*reasons, ElementsAre("length"));
  const auto* ttft = FindAttribute<double>(request, "tandem.ttft_ms");
  ASSERT_NE(ttft, nullptr);
  EXPECT_EQ(*ttft, stream_.FinishOf(0).stages().ttft_ms());
  ASSERT_EQ(request.events.size(), 1u);
  EXPECT_EQ(request.events[0].at - request.start, std::chrono::milliseconds(4));
}

TEST_F(RequestSpansTest, WorkersContinueTheTraceFromTheSpanOfTheirCall) {
  SubmitTraced(Ask());
  const auto reserve = workers_.reservations.back()->trace;
  Reserved();
  const auto prefill = workers_.Find("prefill p0")->trace;
  Say("prefill p0", {7});
  const auto decode = workers_.Find("decode d0")->trace;
  ASSERT_TRUE(reserve && prefill && decode);
  HandOff(std::chrono::microseconds(1));
  Say("decode d0", {8, 9, 10});
  Finish("decode d0", kLength);
  EXPECT_EQ(reserve->span_id, spans_.Only("reserve").id);
  EXPECT_EQ(prefill->span_id, spans_.Only("prefill").id);
  EXPECT_EQ(decode->span_id, spans_.Only("decode").id);
  for (const auto& context : {reserve, prefill, decode}) {
    EXPECT_EQ(context->trace_id, Caller(true).trace_id);
    EXPECT_EQ(context->tracestate, "a=b");
    EXPECT_TRUE(context->sampled);
  }
}

TEST_F(RequestSpansTest, ATraceThatIsNotSampledIsPassedOnAndNothingIsRecorded) {
  SubmitTraced(Ask(v1::ROUTE_DISAGGREGATED), Caller(false));
  const auto passed = workers_.reservations.back()->trace;
  ASSERT_TRUE(passed);
  EXPECT_EQ(passed->span_id, 9u);
  EXPECT_FALSE(passed->sampled);
  Reserved();
  Say("prefill p0", {7});
  HandOff(std::chrono::microseconds(1));
  Say("decode d0", {8, 9, 10});
  Finish("decode d0", kLength);
  EXPECT_TRUE(stream_.end && stream_.end->ok());
  EXPECT_TRUE(spans_.all.empty());
}

TEST_F(RequestSpansTest, WithoutACallersTraceAndWithoutARatioWorkersAreToldOfNone) {
  SubmitTraced(Ask(), std::nullopt);
  EXPECT_FALSE(workers_.reservations.back()->trace);
  Reserved();
  EXPECT_FALSE(workers_.Find("prefill p0")->trace);
}

TEST_F(RequestSpansTest, EachAttemptIsASpanWithItsStatus) {
  Join("d1", v1::WORKER_ROLE_DECODE);
  SubmitTraced(Ask());
  Reserved();
  Say("prefill p0", {7});
  const std::string first = workers_.Find("decode d0") != nullptr ? "d0" : "d1";
  const std::string second = first == "d0" ? "d1" : "d0";
  Pass(std::chrono::milliseconds(3));
  End("decode " + first, absl::UnavailableError("gone"), kNetwork);
  Reserved(6);
  Say("prefill p0", {7});
  HandOff(std::chrono::microseconds(1));
  Say("decode " + second, {8, 9, 10});
  Finish("decode " + second, kLength);
  ASSERT_TRUE(stream_.end && stream_.end->ok()) << *stream_.end;
  ExpectOneTree();
  std::vector<const Span*> attempts;
  std::vector<const Span*> decodes;
  for (const Span& span : spans_.all) {
    if (span.name == "attempt") attempts.push_back(&span);
    if (span.name == "decode") decodes.push_back(&span);
  }
  ASSERT_EQ(attempts.size(), 2u);
  ASSERT_EQ(decodes.size(), 2u);
  EXPECT_EQ(attempts[0]->status.message(), "gone");
  EXPECT_TRUE(attempts[1]->status.ok());
  EXPECT_EQ(*FindAttribute<std::string>(*attempts[0], "tandem.worker.decode"), first);
  EXPECT_EQ(*FindAttribute<std::string>(*attempts[1], "tandem.worker.decode"), second);
  EXPECT_EQ(*FindAttribute<std::string>(*attempts[1], "tandem.decision.cause"), "resumed");
  EXPECT_EQ(decodes[0]->status.message(), "gone");
  EXPECT_TRUE(spans_.Only("generate sample").status.ok());
}

TEST_F(RequestSpansTest, TheWaitForAWorkerIsPartOfTheRoute) {
  Leave("d0");
  SubmitTraced(Ask());
  EXPECT_TRUE(workers_.reservations.empty());
  Pass(std::chrono::milliseconds(40));
  Join("d1", v1::WORKER_ROLE_DECODE);
  ASSERT_FALSE(workers_.reservations.empty());
  traced_router_.Cancel(RequestId(workers_.reservations.back()->request.request_id()),
                        absl::CancelledError("the client went away"));
  loop_.RunReady();
  const Span& route = spans_.Only("route");
  EXPECT_GE(route.end - route.start, std::chrono::milliseconds(40));
  EXPECT_EQ(*FindAttribute<bool>(spans_.Only("reserve"), "tandem.dropped"), true);
  EXPECT_EQ(*FindAttribute<std::string>(spans_.Only("generate sample"), "error.type"), "CANCELLED");
  ExpectOneTree();
}

TEST_F(RequestSpansTest, TextIsTokenizedInASpanAndIsInNone) {
  v1::GenerateRequest request = Ask();
  request.set_text("secret");
  SubmitTraced(request);
  Reserved();
  traced_router_.Cancel(RequestId(workers_.reservations.back()->request.request_id()),
                        absl::CancelledError("the client went away"));
  loop_.RunReady();
  EXPECT_EQ(ParentOf("tokenize"), "generate sample");
  for (const Span& span : spans_.all) {
    for (const SpanAttribute& attribute : span.attributes) {
      const auto* text = std::get_if<std::string>(&attribute.value);
      EXPECT_TRUE(text == nullptr || text->find("secret") == std::string::npos) << attribute.key;
    }
  }
}

TEST_F(RequestSpansTest, ARequestThatIsRefusedIsOneSpanWithTheError) {
  v1::GenerateRequest request = Ask();
  request.set_max_tokens(-1);
  EXPECT_FALSE(traced_router_.Submit(request, kNoDeadline, stream_, Caller(true)).ok());
  ASSERT_THAT(spans_.Names(), ElementsAre("generate sample"));
  EXPECT_EQ(*FindAttribute<std::string>(spans_.all[0], "error.type"), "INVALID_ARGUMENT");
  EXPECT_FALSE(spans_.all[0].status.ok());
}

}  // namespace
}  // namespace tandem::request_spans_test
