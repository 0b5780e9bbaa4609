// Answers that the HTTP server sends over real sockets: as streams, in pieces, and to clients that
// read slowly or not at all.

#include <chrono>
#include <memory>
#include <string>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/http_peer.h"
#include "tests/support/wait_limit.h"
#include "tests/unit/server/http_server_fixture.h"

namespace tandem::http_answers_test {
namespace {

using http_server::Exchange;
using http_server::HttpServerTest;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST_F(HttpServerTest, AStreamIsSentAsItIsPushedAndTheConnectionIsUsedAgain) {
  Start();
  HttpPeer peer(port());
  auto stream = StreamTo(peer, {.headers = {{"X-Id", "7\r\nX-Evil: 1"}}});
  const std::string head = peer.ReadThrough("\r\n\r\n");
  EXPECT_THAT(head, HasSubstr("Content-Type: text/event-stream\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Id: 7  X-Evil: 1\r\n"));
  ASSERT_TRUE(stream->Push(SseEvent("one"), Pace::kLive));
  EXPECT_EQ(peer.ReadThrough("one\n\n\r\n"), "b\r\ndata: one\n\n\r\n");
  ASSERT_TRUE(stream->Push(SseEvent("two"), Pace::kWhole));
  stream->Close();
  EXPECT_EQ(peer.ReadThrough("0\r\n\r\n"), "b\r\ndata: two\n\n\r\n0\r\n\r\n");
  EXPECT_EQ(peer.Get("/hello").body, "hello");
}

// The second part comes while the connection's thread is about to wait after the first one.
TEST_F(HttpServerTest, WhatIsPushedJustBeforeTheConnectionWaitsIsSent) {
  Start();
  HttpPeer peer(port());
  constexpr int kParts = 20000;
  auto stream = StreamTo(peer, {.keep_alive = Duration::zero()});
  for (int i = 0; i < kParts; ++i) {
    ASSERT_TRUE(stream->Push("first", Pace::kLive));
    while (stream->HasUnwritten()) {
    }
    ASSERT_TRUE(stream->Push("last", Pace::kLive));
    ASSERT_THAT(peer.ReadThrough("last\r\n"), HasSubstr("last")) << "part " << i;
  }
  stream->Close();
  EXPECT_EQ(peer.ReadThrough("0\r\n\r\n"), "0\r\n\r\n");
}

TEST_F(HttpServerTest, AnAbortedStreamHasItsLastPartAndNoEnd) {
  Start();
  HttpPeer peer(port());
  auto stream = StreamTo(peer);
  ASSERT_TRUE(stream->Push("one", Pace::kLive));
  stream->Abort("why");
  const HttpReply reply = peer.Read();
  EXPECT_THAT(reply.body, HasSubstr("why"));
  EXPECT_FALSE(reply.is_whole);
  HttpPeer other(port());
  stream = StreamTo(other);
  stream.reset();
  EXPECT_FALSE(other.Read().is_whole) << "dropped without an end";
}

TEST_F(HttpServerTest, AnOldClientGetsAStreamThatEndsWithTheConnection) {
  Start();
  HttpPeer peer(port());
  peer.Send("GET /handed HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const auto stream = handed_.Take()->StartStream({});
  ASSERT_TRUE(stream->Push("one", Pace::kLive));
  stream->Close();
  const HttpReply reply = peer.Read();
  EXPECT_EQ(reply.body, "one");
  EXPECT_EQ(reply.Header("Connection"), "close");
}

TEST_F(HttpServerTest, AnIdleStreamHasComments) {
  Start();
  HttpPeer peer(port());
  const auto stream = StreamTo(peer, {.keep_alive = milliseconds(5)});
  EXPECT_THAT(peer.ReadThrough("\n\n\r\n"), HasSubstr("e\r\n: keep-alive\n\n\r\n"));
  peer.ReadThrough(": keep-alive\n\n\r\n");
  ASSERT_TRUE(stream->Push("part", Pace::kLive));
  EXPECT_THAT(peer.ReadThrough("part\r\n"), HasSubstr("4\r\npart\r\n"));
  stream->Close();
  EXPECT_THAT(peer.ReadThrough("0\r\n\r\n"), testing::EndsWith("0\r\n\r\n"));
}

TEST_F(HttpServerTest, AnIdleStreamMaySayWhatItsApiSays) {
  Start();
  HttpPeer peer(port());
  const auto stream =
      StreamTo(peer, {.keep_alive = milliseconds(5), .keep_alive_part = "event: ping\n\n"});
  EXPECT_THAT(peer.ReadThrough("ping\n\n\r\n"), HasSubstr("d\r\nevent: ping\n\n\r\n"));
  stream->Close();
}

TEST_F(HttpServerTest, AReaderThatIsTooSlowIsToldAndDisconnected) {
  answers_ = std::make_unique<AnswerBuffers>(64 << 20);
  Start({.slow_reader_grace = milliseconds(50), .answers = answers_.get()});
  HttpPeer slow(port(), 4096);
  const auto stream = StreamTo(slow);
  absl::Notification gone;
  exchange_->OnGone([&gone] { gone.Notify(); });
  // More than the system takes of it.
  for (int i = 0; i < 32; ++i) {
    ASSERT_TRUE(stream->Push(std::string(1 << 20, 'x'), Pace::kWhole));
  }
  EXPECT_FALSE(stream->Push("x", Pace::kLive));
  EXPECT_GT(answers_->Use().bytes(), 0u);
  EXPECT_TRUE(stream->HasUnwritten());
  EXPECT_EQ(HttpGet(port(), "/hello").status, 200) << "others are served";
  stream->Abort("too slow");
  Await(gone);
  EXPECT_FALSE(slow.Read().is_whole);
  EXPECT_EQ(answers_->Use().bytes(), 0u);
}

TEST_F(HttpServerTest, AnAnswerThatTheSystemTakesInPiecesArrivesWhole) {
  Start();
  HttpPeer slow(port(), 4096);
  std::string body;
  for (int i = 0; body.size() < (8 << 20); ++i) body += std::to_string(i);
  slow.Send("POST /handed HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n");
  handed_.Take()->Respond({.body = body});
  const HttpReply whole = slow.Read();
  EXPECT_TRUE(whole.is_whole);
  EXPECT_TRUE(whole.body == body);
  const auto stream = StreamTo(slow);
  for (size_t i = 0; i < body.size(); i += 100'000) {
    ASSERT_TRUE(stream->Push(body.substr(i, 100'000), Pace::kWhole));
  }
  stream->Close();
  const HttpReply streamed = slow.Read();
  EXPECT_TRUE(streamed.is_whole);
  EXPECT_TRUE(streamed.body == body);
}

TEST_F(HttpServerTest, AnAnswerThatNobodyReadsIsEnded) {
  answers_ = std::make_unique<AnswerBuffers>(64 << 20);
  Start({.max_reading_time = milliseconds(50), .answers = answers_.get()});
  HttpPeer slow(port(), 4096);
  slow.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  const Exchange exchange = handed_.Take();
  absl::Notification gone;
  exchange->OnGone([&gone] { gone.Notify(); });
  exchange->Respond({.body = std::string(32 << 20, 'x')});
  Await(gone);
  EXPECT_EQ(answers_->Use().unread(), 1u);
}

TEST_F(HttpServerTest, AWholeAnswerIsRefusedWhenTooMuchIsUnread) {
  answers_ = std::make_unique<AnswerBuffers>(1 << 20);
  Start({.answers = answers_.get()});
  HttpPeer peer(port());
  peer.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  handed_.Take()->Respond({.body = std::string(2 << 20, 'x')});
  const HttpReply reply = peer.Read();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.Header("Retry-After"), "1");
  EXPECT_EQ(peer.Get("/hello").body, "hello");
}

TEST_F(HttpServerTest, AnswersThatOutliveTheServerAreNeitherCountedNorTouchTheCount) {
  answers_ = std::make_unique<AnswerBuffers>(64 << 20);
  Start({.answers = answers_.get()});
  HttpPeer slow(port(), 4096);
  const auto stream = StreamTo(slow);
  for (int i = 0; i < 32; ++i) {
    ASSERT_TRUE(stream->Push(std::string(1 << 20, 'x'), Pace::kWhole));
  }
  HttpPeer other(port());
  other.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  const Exchange late = handed_.Take();
  server_.reset();
  EXPECT_EQ(answers_->Use().bytes(), 0u);
  stream->Abort("too late");
  late->Respond({.body = std::string(1 << 20, 'x')});
  EXPECT_EQ(answers_->Use().bytes(), 0u) << "nobody will read them";
  answers_.reset();
}

}  // namespace
}  // namespace tandem::http_answers_test
