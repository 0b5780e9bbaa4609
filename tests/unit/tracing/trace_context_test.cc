// The headers of W3C Trace Context, with the cases of its specification and of its test suite.

#include "tracing/trace_context.h"

#include <set>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tracing/tracestate.h"

namespace tandem::trace_context_test {
namespace {

constexpr char kTraceId[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

std::optional<TraceContext> Parse(std::string_view traceparent,
                                  std::vector<std::string_view> tracestates = {}) {
  const std::string_view parents[] = {traceparent};
  return ParseTraceContext(parents, tracestates);
}

std::optional<std::string> Join(std::vector<std::string_view> headers) {
  return JoinTracestates(headers);
}

TEST(TraceContextTest, AWellFormedParentIsTakenAndWrittenAsItCame) {
  const auto context = Parse(kParent);
  ASSERT_TRUE(context);
  EXPECT_EQ(ToHex(context->trace_id), kTraceId);
  EXPECT_EQ(ToHex(context->span_id), "b7ad6b7169203331");
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(ToTraceparent(*context), kParent);
}

TEST(TraceContextTest, OnlyTheSampledFlagIsReadAndOthersAreNotPassedOn) {
  const std::string head = std::string(kParent, 53);
  EXPECT_FALSE(Parse(head + "00")->sampled);
  EXPECT_FALSE(Parse(head + "02")->sampled);
  EXPECT_TRUE(Parse(head + "ff")->sampled);
  EXPECT_EQ(ToTraceparent(*Parse(head + "ff")), head + "01");
  EXPECT_EQ(ToTraceparent(*Parse(head + "fe")), head + "00");
}

TEST(TraceContextTest, WhatTheSpecificationCallsMalformedBeginsANewTrace) {
  const std::string ids = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331";
  for (const std::string& text : std::vector<std::string>{
           std::string(),
           "00-" + ids,                                                // no flags
           "00-" + ids + "-1",                                         // one digit of flags
           "00-" + ids + "-01-",                                       // version 00 ends there
           "00-" + ids + "-01-what-the-future-will-be-like",           // likewise
           "ff-" + ids + "-01",                                        // forbidden version
           "FF-" + ids + "-01",                                        // and in upper case
           "0-" + ids + "-01",                                         // one digit of version
           "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",  // upper case
           "00-0af7651916cd43dd8448eb211c80319c-B7AD6B7169203331-01",  // likewise
           "00-" + ids + "-0A",                                        // likewise
           "00-00000000000000000000000000000000-b7ad6b7169203331-01",  // no trace
           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",  // no parent
           "00-0af7651916cd43dd8448eb211c80319-b7ad6b71692033312-01",  // dashes elsewhere
           "00-.af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",  // no digit
           "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",  // no dashes
           "01-" + ids + "-01.more",  // what follows later versions begins with a dash
       }) {
    EXPECT_FALSE(Parse(text)) << text;
  }
}

TEST(TraceContextTest, ALaterVersionIsReadAsFarAsItIsKnownAndPassedOnAsVersionZero) {
  for (const char* const rest : {"", "-", "-what-the-future-will-be-like"}) {
    const auto context = Parse("cc" + std::string(kParent + 2) + rest);
    ASSERT_TRUE(context) << rest;
    EXPECT_EQ(ToTraceparent(*context), kParent);
  }
}

TEST(TraceContextTest, NoneOrSeveralParentsBeginANewTrace) {
  EXPECT_FALSE(ParseTraceContext({}, {}));
  const std::string_view twice[] = {kParent, kParent};
  EXPECT_FALSE(ParseTraceContext(twice, {}));
}

TEST(TraceContextTest, SpaceAroundTheValueOfAHeaderIsNoPartOfIt) {
  EXPECT_TRUE(Parse(" \t" + std::string(kParent) + " "));
  EXPECT_FALSE(Parse("00 -" + std::string(kParent + 3)));
}

TEST(TraceContextTest, AMalformedStateIsDroppedAndItsTraceContinues) {
  const auto context = Parse(kParent, {"rojo=1,Upper=2"});
  ASSERT_TRUE(context);
  EXPECT_EQ(context->tracestate, "");
  EXPECT_EQ(Parse(kParent, {"rojo=00f067aa0ba902b7", "congo=t61rcWkgMzE"})->tracestate,
            "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE");
}

TEST(TracestateTest, MembersKeepTheirOrderAndLoseTheSpaceAroundThem) {
  EXPECT_EQ(Join({"foo=1 \t , \t bar=2", "baz=3"}), "foo=1,bar=2,baz=3");
  EXPECT_EQ(Join({"foo=1,", ",", "", "bar=2"}), "foo=1,bar=2") << "empty members say nothing";
  EXPECT_EQ(Join({}), "");
  EXPECT_EQ(Join({"fw529a3039@dt=FfAZUBA", "0x_-*/=a b!~"}), "fw529a3039@dt=FfAZUBA,0x_-*/=a b!~");
}

TEST(TracestateTest, OneMalformedMemberMakesTheWholeMalformed) {
  const std::string long_key(257, 'a');
  const std::string long_tenant(242, 't');
  for (const std::string& bad :
       {std::string("foo"), std::string("foo="), std::string("=1"), std::string("foo =1"),
        std::string("FOO=1"), std::string("foo.bar=1"), std::string("-foo=1"),
        std::string("foo@=1"), std::string("@foo=1"), std::string("foo@@bar=1"),
        std::string("foo@bar@baz=1"), std::string("foo@0bar=1"), std::string("foo=bar=baz"),
        std::string("foo=\x01"), std::string("foo=\xc3\xa9"), long_key + "=1", long_tenant + "@v=1",
        "t@" + std::string(15, 'v') + "=1", "foo=" + std::string(257, '1')}) {
    EXPECT_FALSE(Join({"ok=1", bad})) << bad;
  }
  EXPECT_FALSE(Join({"foo=1", "bar=2,foo=3"})) << "a key comes twice";
}

TEST(TracestateTest, ThirtyTwoMembersAreTakenAndNotOneMore) {
  std::string members;
  for (int i = 0; i < 32; ++i) members += fmt::format("{}k{}=1", i == 0 ? "" : ",", i);
  EXPECT_EQ(Join({members}), members);
  EXPECT_FALSE(Join({members, "one=more"}));
}

TEST(TracestateTest, BeyondItsBoundLongMembersGoFirstAndThenTheLastOnes) {
  const std::string small = "small=1";
  const std::string large = "large=" + std::string(200, 'x');
  std::string rest;
  for (int i = 0; i < 5; ++i) rest += fmt::format(",m{}={}", i, std::string(98, 'x'));  // 102 each
  EXPECT_EQ(Join({small, large})->size(), small.size() + 1 + large.size()) << "it fits";
  const std::string joined = *Join({small, large + rest});
  EXPECT_LE(joined.size(), kMaxTracestateBytes);
  EXPECT_EQ(joined, small + rest.substr(0, 4 * 102))
      << "with the fifth there would be five bytes too many";
}

TEST(TraceContextTest, NewIdsAreNeverZeroNorTheSame) {
  std::set<SpanId> spans;
  std::set<std::string> traces;
  for (int i = 0; i < 1000; ++i) {
    spans.insert(NewSpanId());
    traces.insert(ToHex(NewTraceId()));
  }
  EXPECT_EQ(spans.size(), 1000u);
  EXPECT_EQ(traces.size(), 1000u);
  EXPECT_FALSE(spans.contains(0));
}

}  // namespace
}  // namespace tandem::trace_context_test
