#include "server/http/request_reader.h"

#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::request_reader_test {
namespace {

using ::testing::HasSubstr;
using State = RequestReader::State;

constexpr HttpRequestLimits kLimits = {.max_header_bytes = 512, .max_body_bytes = 64};

struct Outcome {
  State state = State::kEmpty;
  int status = 0;  // of a refusal
  HttpRequest request;
  AfterAnswer after = AfterAnswer::kClose;
  std::string rest;
};

// Reads `bytes` as they come in pieces of this size.
Outcome ReadInPieces(const std::string& bytes, size_t piece) {
  RequestReader reader(kLimits);
  std::string received;
  size_t at = 0;
  const auto is_open = [&] {
    return reader.state() != State::kDone && reader.state() != State::kRefused;
  };
  while (at < bytes.size() && is_open()) {
    received += bytes.substr(at, piece);
    at = std::min(at + piece, bytes.size());
    received.erase(0, reader.Read(received));
  }
  Outcome outcome{.state = reader.state(), .rest = received + bytes.substr(at)};
  if (outcome.state == State::kRefused) outcome.status = reader.refusal().status;
  if (outcome.state == State::kDone) {
    outcome.request = reader.TakeRequest();
    outcome.after = reader.after();
  }
  return outcome;
}

// The same, whatever the sizes of the pieces.
Outcome ReadAll(const std::string& bytes) {
  const Outcome whole = ReadInPieces(bytes, bytes.size());
  for (const size_t piece : {1, 2, 3, 7}) {
    const Outcome pieces = ReadInPieces(bytes, piece);
    EXPECT_EQ(pieces.state, whole.state) << bytes;
    EXPECT_EQ(pieces.status, whole.status) << bytes;
    EXPECT_EQ(pieces.request.body, whole.request.body) << bytes;
    EXPECT_EQ(pieces.request.headers.size(), whole.request.headers.size()) << bytes;
    if (whole.state == State::kDone) {
      EXPECT_EQ(pieces.rest, whole.rest) << bytes;
    }
  }
  return whole;
}

// What a request with these lines after its Host is refused with; 0 when it is not.
int RefusalOf(const std::string& lines, const std::string& body = "") {
  return ReadAll("POST /a HTTP/1.1\r\nHost: h\r\n" + lines + "\r\n" + body).status;
}

TEST(RequestReaderTest, FindsMethodPathQueryHeadersAndBody) {
  const Outcome outcome = ReadAll(
      "POST /v1/a%20b?x=1&y=?2 HTTP/1.1\r\nHost: h\r\nX-One:  two \r\nContent-Length: 5\r\n\r\n"
      "helloGET");
  ASSERT_EQ(outcome.state, State::kDone);
  EXPECT_EQ(outcome.request.method, "POST");
  EXPECT_EQ(outcome.request.path, "/v1/a%20b");
  EXPECT_EQ(outcome.request.query, "x=1&y=?2");
  EXPECT_EQ(outcome.request.Header("x-one"), "two");
  EXPECT_FALSE(outcome.request.Header("x-two"));
  EXPECT_EQ(outcome.request.body, "hello");
  EXPECT_EQ(outcome.after, AfterAnswer::kKeepAlive);
  EXPECT_EQ(outcome.rest, "GET");
}

TEST(RequestReaderTest, AChunkedBodyIsPutTogetherAndItsTrailersAreDropped) {
  const Outcome outcome = ReadAll(
      "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "5;name=value\r\nhello\r\n1\r\n!\r\n0\r\nX-Late: 1\r\n\r\nGET");
  ASSERT_EQ(outcome.state, State::kDone);
  EXPECT_EQ(outcome.request.body, "hello!");
  EXPECT_FALSE(outcome.request.Header("x-late"));
  EXPECT_EQ(outcome.rest, "GET");
}

TEST(RequestReaderTest, TheConnectionStaysOpenAsTheVersionAndTheClientSay) {
  const auto after = [](const std::string& text) { return ReadAll(text + "\r\n").after; };
  EXPECT_EQ(after("GET / HTTP/1.1\r\nHost: h\r\n"), AfterAnswer::kKeepAlive);
  EXPECT_EQ(after("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"), AfterAnswer::kClose);
  EXPECT_EQ(after("GET / HTTP/1.0\r\n"), AfterAnswer::kClose);
  EXPECT_EQ(after("GET / HTTP/1.0\r\nConnection: keep-alive\r\n"), AfterAnswer::kKeepAlive);
}

TEST(RequestReaderTest, ATargetMayHaveSchemeAndHost) {
  EXPECT_EQ(ReadAll("GET http://host:1/a?b HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/a");
  EXPECT_EQ(ReadAll("GET http://host HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "/");
  EXPECT_EQ(ReadAll("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n").request.path, "*");
  EXPECT_EQ(ReadAll("GET a HTTP/1.1\r\nHost: h\r\n\r\n").status, 400);
  EXPECT_EQ(ReadAll("CONNECT host:1 HTTP/1.1\r\nHost: h\r\n\r\n").status, 400);
}

TEST(RequestReaderTest, OneEmptyLineBeforeARequestIsForgiven) {
  EXPECT_EQ(ReadAll("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").state, State::kDone);
  EXPECT_EQ(ReadAll("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n").status, 400);
}

TEST(RequestReaderTest, TwoAnswersToWhereABodyEndsAreRefused) {
  for (const char* lines : {
           "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
           "Content-Length: 3\r\nTransfer-Encoding: identity\r\n",
           "Transfer-Encoding: identity\r\nContent-Length: 3\r\n",
           "Content-Length: 3\r\nContent-Length: 4\r\n",
           "Content-Length: 3\r\nContent-Length: 3\r\n",
           "Content-Length: 3, 3\r\n",
           "Content-Length: 3, 4\r\n",
           "Content-Length: +3\r\n",
           "Content-Length: -3\r\n",
           "Content-Length: 0x3\r\n",
           "Content-Length: 3 3\r\n",
           "Content-Length:\r\n",
           "Content-Length: 18446744073709551617\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
           "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
           "Content-Length : 3\r\n",
           "Transfer-Encoding : chunked\r\n",
           " Content-Length: 3\r\n",
           "X: y\r\n Content-Length: 3\r\n",
           "X: y\r\n\tTransfer-Encoding: chunked\r\n",
           "X: y\nContent-Length: 3\r\n",
           "X: y\rContent-Length: 3\r\n",
       }) {
    EXPECT_EQ(RefusalOf(lines, "0\r\n\r\n"), 400) << lines;
  }
  EXPECT_EQ(RefusalOf(std::string("X: a\0b\r\n", 8)), 400);
}

TEST(RequestReaderTest, EncodingsOtherThanChunkedAreNotUnderstood) {
  for (const char* encoding : {"gzip", "gzip, chunked", "chunked, gzip", "chunked, chunked",
                               "xchunked", "\"chunked\"", "chunked;q=1", "identity"}) {
    const int status = RefusalOf(fmt::format("Transfer-Encoding: {}\r\n", encoding), "0\r\n\r\n");
    EXPECT_TRUE(status == 501 || status == 400) << encoding << " " << status;
  }
  EXPECT_EQ(ReadAll("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").status, 400);
}

TEST(RequestReaderTest, MalformedChunksAreRefused) {
  for (const char* body : {"x\r\n", " 5\r\nhello\r\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n",
                           "5\nhello\r\n0\r\n\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "-1\r\nhello\r\n",
                           "ffffffffffffffffff\r\n", "5 bad\r\nhello\r\n0\r\n\r\n"}) {
    const int status = RefusalOf("Transfer-Encoding: chunked\r\n", body);
    EXPECT_EQ(status, 400) << body;
  }
}

TEST(RequestReaderTest, LongHeadersAreRefused) {
  EXPECT_EQ(RefusalOf("X: " + std::string(kLimits.max_header_bytes, 'x') + "\r\n"), 431);
  EXPECT_EQ(ReadAll("GET /" + std::string(kLimits.max_header_bytes, 'x')).status, 431);
  std::string many;
  for (int i = 0; i < 200; ++i) many += "X: y\r\n";
  EXPECT_EQ(RefusalOf(many), 431);
}

TEST(RequestReaderTest, AHeaderOfExactlyTheLimitIsTaken) {
  const std::string start = "GET / HTTP/1.1\r\nHost: h\r\nX: ";
  const std::string fill(kLimits.max_header_bytes - start.size() - 4, 'x');
  EXPECT_EQ(ReadAll(start + fill + "\r\n\r\n").state, State::kDone);
  EXPECT_EQ(ReadAll(start + fill + "x\r\n\r\n").status, 431);
}

TEST(RequestReaderTest, LongBodiesAreRefusedBeforeTheyAreRead) {
  EXPECT_EQ(RefusalOf("Content-Length: 64\r\n", std::string(64, 'b')), 0);
  EXPECT_EQ(RefusalOf("Content-Length: 65\r\n"), 413);
  EXPECT_EQ(RefusalOf("Content-Length: 99999999999999\r\n"), 413);
  EXPECT_EQ(RefusalOf("Transfer-Encoding: chunked\r\n", "41\r\n"), 413);
  EXPECT_EQ(
      RefusalOf("Transfer-Encoding: chunked\r\n", "20\r\n" + std::string(32, 'b') + "\r\n21\r\n"),
      413);
}

TEST(RequestReaderTest, EndlessChunkHeadersAndTrailersAreRefused) {
  const std::string endless(4 * kLimits.max_header_bytes, 'x');
  EXPECT_EQ(RefusalOf("Transfer-Encoding: chunked\r\n", "5;" + endless), 400);
  EXPECT_EQ(RefusalOf("Transfer-Encoding: chunked\r\n", "0\r\nX: " + endless), 400);
}

TEST(RequestReaderTest, WhatIsNotHttpIsRefused) {
  EXPECT_EQ(ReadAll("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").status, 505);
  EXPECT_EQ(ReadAll("GET /\r\n\r\n").status, 400);
  EXPECT_EQ(ReadAll("\x16\x03\x01\x02\r\n\r\n").status, 400);
  EXPECT_EQ(ReadAll("GET / HTTP/1.1\r\n\r\n").status, 400) << "no Host";
  EXPECT_EQ(ReadAll("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").status, 400);
  EXPECT_EQ(RefusalOf("Expect: a miracle\r\n"), 417);
}

TEST(RequestReaderTest, AnExpectationIsKnownBeforeTheBody) {
  RequestReader reader(kLimits);
  const std::string header =
      "POST / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n";
  EXPECT_EQ(reader.Read(header), header.size());
  EXPECT_EQ(reader.state(), State::kBody);
  EXPECT_TRUE(reader.expects_continue());
  EXPECT_EQ(reader.Read("ok"), 2u);
  EXPECT_EQ(reader.state(), State::kDone);
}

}  // namespace
}  // namespace tandem::request_reader_test
