// Spans as a collector reads them, by the rules of OTLP's JSON.

#include "tracing/otlp_json.h"

#include <limits>
#include <string>

#include "base/json.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace tandem::otlp_json_test {
namespace {

using Json = nlohmann::json;

Span AnySpan() {
  Span span;
  span.trace_id = {.high = 0x0102030405060708, .low = 0x090a0b0c0d0e0f10};
  span.id = 0xab;
  span.name = "prefill";
  span.kind = SpanKind::kClient;
  span.start = TimePoint(std::chrono::seconds(5));
  span.end = TimePoint(std::chrono::seconds(5) + std::chrono::nanoseconds(7));
  return span;
}

Json SpanOf(const Span& span, Duration offset = {}) {
  const EndedTrace traces[] = {{.spans = {span}, .unix_offset = offset}};
  const std::string text = ToOtlpJson({.attributes = {}, .version = "1"}, traces);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  return ParseJson(text)["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
}

TEST(OtlpJsonTest, IdsAreHexadecimalTimesAreTextAndKindsAreNumbers) {
  const Json json = SpanOf(AnySpan(), std::chrono::seconds(1'700'000'000));
  EXPECT_EQ(json["traceId"], "0102030405060708090a0b0c0d0e0f10");
  EXPECT_EQ(json["spanId"], "00000000000000ab");
  EXPECT_EQ(json["kind"], 3);
  EXPECT_EQ(json["startTimeUnixNano"], "1700000005000000000");
  EXPECT_EQ(json["endTimeUnixNano"], "1700000005000000007");
  EXPECT_FALSE(json.contains("parentSpanId"));
  EXPECT_FALSE(json.contains("traceState"));
  EXPECT_FALSE(json.contains("status")) << "nothing failed";
}

TEST(OtlpJsonTest, ParentStateEventsAndErrorsAreThereWhereASpanHasThem) {
  Span span = AnySpan();
  span.parent = 1;
  span.tracestate = "a=b";
  span.events = {{.name = "first_token", .at = span.start}};
  span.status = absl::UnavailableError("d0 is gone");
  const Json json = SpanOf(span);
  EXPECT_EQ(json["parentSpanId"], "0000000000000001");
  EXPECT_EQ(json["traceState"], "a=b");
  EXPECT_EQ(json["events"][0]["name"], "first_token");
  EXPECT_EQ(json["events"][0]["timeUnixNano"], "5000000000");
  EXPECT_EQ(json["status"], Json({{"code", 2}, {"message", "d0 is gone"}}));
}

TEST(OtlpJsonTest, EachTypeOfAttributeHasItsField) {
  Span span = AnySpan();
  span.attributes = {{"text", "x"},
                     {"count", int64_t{9007199254740993}},
                     {"ms", 1.5},
                     {"yes", true},
                     {"list", std::vector<std::string>{"stop", "length"}},
                     {"endless", std::numeric_limits<double>::infinity()}};
  const Json json = SpanOf(span)["attributes"];
  EXPECT_EQ(json[0]["value"]["stringValue"], "x");
  EXPECT_EQ(json[1]["value"]["intValue"], "9007199254740993");
  EXPECT_EQ(json[2]["value"]["doubleValue"], 1.5);
  EXPECT_EQ(json[3]["value"]["boolValue"], true);
  EXPECT_EQ(json[4]["value"]["arrayValue"]["values"][1]["stringValue"], "length");
  EXPECT_EQ(json[5]["value"]["doubleValue"], "Infinity");
}

TEST(OtlpJsonTest, BytesThatAreNoUtf8AreReplaced) {
  Span span = AnySpan();
  span.name = "a\xff";
  EXPECT_EQ(SpanOf(span)["name"], "a\xef\xbf\xbd");
}

TEST(OtlpJsonTest, AllSpansOfABatchShareOneResource) {
  const EndedTrace traces[] = {{.spans = {AnySpan(), AnySpan()}}, {.spans = {AnySpan()}}};
  const Json json = ParseJson(
      ToOtlpJson({.attributes = {{"service.name", "tandem-router"}}, .version = "1.2"}, traces));
  const Json& resource = json["resourceSpans"][0];
  ASSERT_EQ(json["resourceSpans"].size(), 1u);
  EXPECT_EQ(resource["resource"]["attributes"][0]["value"]["stringValue"], "tandem-router");
  EXPECT_EQ(resource["scopeSpans"][0]["scope"], Json({{"name", "tandem"}, {"version", "1.2"}}));
  EXPECT_EQ(resource["scopeSpans"][0]["spans"].size(), 3u);
}

}  // namespace
}  // namespace tandem::otlp_json_test
