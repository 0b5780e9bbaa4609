#include "bench/serving/sse_parser.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::sse_parser_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The data of all events, the stream cut into pieces of `piece` bytes.
std::vector<std::string> EventsOf(const std::string& stream, size_t piece) {
  std::vector<std::string> events;
  SseParser parser([&events](std::string_view data) { events.emplace_back(data); });
  for (size_t at = 0; at < stream.size(); at += piece) {
    parser.Feed(std::string_view(stream).substr(at, piece));
  }
  return events;
}

TEST(SseParserTest, EventsAreTheSameHoweverTheStreamIsCut) {
  const std::string stream =
      ": keep-alive\n\ndata: {\"a\":1}\n\nevent: x\r\nid: 7\r\ndata:two\r\ndata: lines\r\n\r\n"
      "data\n\nretry: 5\n\ndatax: no\n\ndata: [DONE]\n\n";
  for (const size_t piece : {1, 2, 3, 7, 1000}) {
    EXPECT_THAT(EventsOf(stream, piece), ElementsAre("{\"a\":1}", "two\nlines", "", "[DONE]"))
        << piece;
  }
}

TEST(SseParserTest, AnEventThatIsNotEndedByAnEmptyLineIsNone) {
  EXPECT_THAT(EventsOf("data: cut off\n", 100), IsEmpty());
  EXPECT_THAT(EventsOf("data: cut off", 100), IsEmpty());
}

TEST(SseParserTest, ACarriageReturnAloneEndsALineToo) {
  EXPECT_THAT(EventsOf("data: a\r\rdata: b\r\n\n", 1), ElementsAre("a", "b"));
}

}  // namespace
}  // namespace tandem::loadgen::sse_parser_test
