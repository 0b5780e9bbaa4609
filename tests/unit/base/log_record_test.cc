// Lines of the log taken apart, and as JSON.

#include "base/log_record.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::log_record_test {
namespace {

template <typename... Args>
LogRecord Of(fmt::format_string<Args...> format, Args&&... args) {
  return ToLogRecord(format, fmt::make_format_args(args...));
}

// "key=value" of each field; JSON values in angle brackets.
std::string Fields(const LogRecord& record) {
  std::string all;
  for (const LogField& field : record.fields) {
    const char* const form = field.is_json ? "{}=<{}>;" : "{}={};";
    all += fmt::format(fmt::runtime(form), field.key, field.value);
  }
  return all;
}

TEST(LogRecordTest, FieldsOfALineAreFoundAndItsMessageIsTheRest) {
  const LogRecord record = Of("draining seconds={}", 30);
  EXPECT_EQ(record.text, "draining seconds=30");
  EXPECT_EQ(record.message, "draining");
  EXPECT_EQ(Fields(record), "seconds=<30>;");
}

TEST(LogRecordTest, ALineWithoutFieldsIsItsMessage) {
  const LogRecord record = Of("{} ended; it starts again in {} ms", "decode-0", 100);
  EXPECT_EQ(record.message, "decode-0 ended; it starts again in 100 ms");
  EXPECT_EQ(record.text, record.message);
  EXPECT_TRUE(record.fields.empty());
}

TEST(LogRecordTest, WhatIsFilledInIsNeverTakenForAField) {
  const LogRecord record = Of("worker={} lost why=\"{}\"", "a b=1", "x=\"1\" y=2");
  EXPECT_EQ(record.text, "worker=a b=1 lost why=\"x=\"1\" y=2\"");
  EXPECT_EQ(record.message, "lost");
  EXPECT_EQ(Fields(record), "worker=a b=1;why=x=\"1\" y=2;");
  EXPECT_TRUE(Of("{}", "key=value").fields.empty());
}

TEST(LogRecordTest, AFieldMayHaveSeveralPartsAndEndsWithPunctuationOfItsSentence) {
  const LogRecord record = Of("http at={}://{}", "http", "[::1]:80");
  EXPECT_EQ(Fields(record), "at=http://[::1]:80;");
  const LogRecord sentence =
      Of("router={} has addresses={}, of which only the first {} are used", "r", 70, 64);
  EXPECT_EQ(sentence.text, "router=r has addresses=70, of which only the first 64 are used");
  EXPECT_EQ(sentence.message, "has of which only the first 64 are used");
  EXPECT_EQ(Fields(sentence), "router=r;addresses=<70>;");
  EXPECT_EQ(Fields(Of("routing policy={} by=cost: all is known", "auto")), "policy=auto;by=cost;");
}

TEST(LogRecordTest, NumbersAndTruthValuesAreJsonAndAllElseIsText) {
  EXPECT_EQ(Fields(Of("a={} b={:.3f} c={} d={}", -1, 0.25, true, 'x')),
            "a=<-1>;b=<0.250>;c=<true>;d=x;");
  EXPECT_EQ(Fields(Of("tables={:016x} n={:x}", 0x12, 0x12)), "tables=0000000000000012;n=12;")
      << "hexadecimal";
  EXPECT_EQ(Fields(Of("id={} in=\"{}\"", uint64_t{1} << 60, 7)), "id=1152921504606846976;in=7;")
      << "more than a double keeps; quoted";
  EXPECT_EQ(Fields(Of("x={}", std::numeric_limits<double>::infinity())), "x=inf;");
  EXPECT_EQ(Fields(Of("text={}", "12")), "text=12;");
  EXPECT_EQ(Fields(Of("big={}", 1e300)), "big=<1e+300>;");
}

TEST(LogRecordTest, AFieldWithoutAValueIsLeftOutOfTheTextAsWell) {
  const LogRecord record = Of("request request_id={} trace_id={} ttft_ms={:.1f} status={}", "r1",
                              "", std::nan(""), "OK");
  EXPECT_EQ(record.text, "request request_id=r1 status=OK");
  EXPECT_EQ(Fields(record), "request_id=r1;status=OK;");
  EXPECT_EQ(Of("left why=\"{}\"", "").text, "left why=\"\"") << "quotes show that there is none";
}

TEST(LogRecordTest, BracesAndFormatsThatAreNotUnderstoodAreFilledInAllTheSame) {
  EXPECT_EQ(Of("{{}} at={}", 1).text, "{} at=1");
  EXPECT_EQ(Of("at={:{}}", 1, 3).text, "at=  1");
  EXPECT_TRUE(Of("at={:{}}", 1, 3).fields.empty());
  EXPECT_EQ(Of("marks=[{}] parser={}", fmt::join(std::vector<int>{1, 2}, ", "), "x").text,
            "marks=[1, 2] parser=x");
}

const LogOrigin kOrigin = {
    .time = "2026-11-29T13:37:41.000001Z", .level = "info", .process = "router", .thread = "main"};

TEST(LogRecordTest, AJsonLineHasItsOriginThenItsFields) {
  EXPECT_EQ(ToJsonLine(kOrigin, Of("draining seconds={} why={}", 30, "term")),
            R"({"time":"2026-11-29T13:37:41.000001Z","level":"info","process":"router",)"
            R"("thread":"main","message":"draining","seconds":30,"why":"term"})");
}

TEST(LogRecordTest, AnyBytesGiveOneLineOfValidJson) {
  std::string bytes = "quote\" back\\slash \n\r\t\x01\x7f \xff\xc3 \xe2\x82\xac nul";
  bytes.push_back('\0');
  const std::string line = ToJsonLine(kOrigin, Of("got bytes={}", bytes));
  EXPECT_THAT(line, testing::HasSubstr(R"("bytes":"quote\" back\\slash \n\u000d\u0009\u0001\u007f )"
                                       "\xef\xbf\xbd\xef\xbf\xbd \xe2\x82\xac nul\\u0000\"}"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(line.find('\0'), std::string::npos);
}

TEST(LogRecordTest, AFieldThatIsCalledAsPartOfTheOriginKeepsBoth) {
  const std::string line = ToJsonLine(kOrigin, Of("worker process={} level={}", "p", 3));
  EXPECT_THAT(line, testing::HasSubstr(R"("process":"router")"));
  EXPECT_THAT(line, testing::EndsWith(R"("message":"worker","process_":"p","level_":3})"));
}

}  // namespace
}  // namespace tandem::log_record_test
