// The connections of the HTTP server over real sockets: which of them are closed or refused when
// they are slow, idle or too many, and what a request learns of a client that goes.

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "tests/support/http_peer.h"
#include "tests/support/wait_limit.h"
#include "tests/unit/server/http_server_fixture.h"

namespace tandem::http_connections_test {
namespace {

using http_server::Exchange;
using http_server::HttpServerTest;
using std::chrono::milliseconds;

TEST_F(HttpServerTest, SlowHeadersAndBodiesTimeOut) {
  Start({.header_timeout = milliseconds(50), .body_timeout = milliseconds(50)});
  HttpPeer header(port());
  header.Send("GET / HTT");
  EXPECT_EQ(header.Read().status, 408);
  HttpPeer body(port());
  body.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx");
  EXPECT_EQ(body.Read().status, 408);
  HttpPeer silent(port());
  EXPECT_EQ(silent.ReadThrough("HTTP/"), "") << "closed without a word";
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosed) {
  Start({.idle_timeout = milliseconds(50)});
  HttpPeer peer(port());
  EXPECT_EQ(peer.Get("/hello").status, 200);
  EXPECT_EQ(peer.ReadThrough("HTTP/"), "");
}

TEST_F(HttpServerTest, TheLongestIdleConnectionMakesRoom) {
  Start({.max_connections = 2});
  HttpPeer oldest(port());
  EXPECT_EQ(oldest.Get("/hello").status, 200);
  HttpPeer busy(port());
  const auto stream = StreamTo(busy);
  EXPECT_EQ(HttpGet(port(), "/hello").status, 200);
  EXPECT_TRUE(oldest.AwaitEnd());
  EXPECT_GE(server_->use().evicted, 1u);
  ASSERT_TRUE(stream->Push("still here", Pace::kLive));
  stream->Close();
  EXPECT_EQ(busy.Read().body, "still here");
}

TEST_F(HttpServerTest, WhenAllAreBeingAnsweredAnotherIsRefused) {
  Start({.max_connections = 1});
  HttpPeer busy(port());
  const auto stream = StreamTo(busy);
  const HttpReply refused = HttpPeer(port()).Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("Retry-After"), "1");
  while (server_->use().refused == 0) std::this_thread::yield();
  stream->Close();
  EXPECT_TRUE(busy.Read().is_whole);
}

TEST_F(HttpServerTest, ARefusedClientMaySendItsRequestAndReadsWhyItWasRefused) {
  Start({.max_connections = 1});
  HttpPeer busy(port());
  const auto stream = StreamTo(busy);
  HttpPeer other(port());
  while (server_->use().refused == 0) std::this_thread::yield();
  EXPECT_TRUE(other.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n"));
  EXPECT_TRUE(other.Send(std::string(3'000'000, 'x')));
  const HttpReply refused = other.Read();
  EXPECT_EQ(refused.status, 503);
  EXPECT_TRUE(refused.is_whole);
  EXPECT_EQ(refused.Header("Retry-After"), "1");
  stream->Close();
}

TEST_F(HttpServerTest, RefusedConnectionsAreBoundedAndLeaveTheOthersAlone) {
  Start({.max_connections = 1});
  HttpPeer busy(port());
  const auto stream = StreamTo(busy);
  std::vector<std::unique_ptr<HttpPeer>> refused;
  for (int i = 0; i < 300; ++i) refused.push_back(std::make_unique<HttpPeer>(port()));
  for (auto& peer : refused) EXPECT_TRUE(peer->AwaitEnd());
  while (server_->use().refused < 300) std::this_thread::yield();
  ASSERT_TRUE(stream->Push("still here", Pace::kLive));
  stream->Close();
  EXPECT_EQ(busy.Read().body, "still here");
}

TEST_F(HttpServerTest, HalfOpenConnectionsDoNotStopOthers) {
  constexpr int kHalfOpen = 400;
  Start({.max_connections = 100});
  HttpPeer busy(port());
  const auto stream = StreamTo(busy);
  std::vector<std::unique_ptr<HttpPeer>> half_open;
  for (int i = 0; i < kHalfOpen; ++i) {
    half_open.push_back(std::make_unique<HttpPeer>(port()));
    half_open.back()->Send(i % 2 == 0
                               ? "GET /hello HTTP/1.1\r\nHost:"
                               : "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
    if (i % 50 == 0) {
      EXPECT_EQ(HttpGet(port(), "/hello").status, 200);
    }
  }
  EXPECT_EQ(HttpGet(port(), "/hello").status, 200);
  EXPECT_GE(server_->use().evicted, uint64_t{kHalfOpen - 100});
  EXPECT_EQ(server_->use().refused, 0u);
  stream->Close();
  EXPECT_TRUE(busy.Read().is_whole) << "an answer in progress is left alone";
}

TEST_F(HttpServerTest, AClientThatGoesIsNoticedInAStreamAndBeforeIt) {
  Start();
  for (const bool in_stream : {true, false}) {
    auto peer = std::make_unique<HttpPeer>(port());
    peer->Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
    const Exchange exchange = handed_.Take();
    std::shared_ptr<HttpStream> stream;
    if (in_stream) stream = exchange->StartStream({});
    absl::Notification gone;
    exchange->OnGone([&gone] { gone.Notify(); });
    EXPECT_FALSE(gone.HasBeenNotified());
    peer.reset();
    Await(gone);
    if (stream != nullptr) {
      EXPECT_TRUE(stream->Push("late", Pace::kLive));
      stream->Close();
    } else {
      exchange->Respond({.body = "late"});
    }
  }
}

TEST_F(HttpServerTest, AClientThatGoesIsNoticedBehindManyPipelinedBytes) {
  Start();
  for (const size_t bytes : {100u << 10, 4u << 20}) {
    HttpPeer peer(port());
    peer.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
    const Exchange exchange = handed_.Take();
    absl::Notification gone;
    exchange->OnGone([&gone] { gone.Notify(); });
    EXPECT_TRUE(peer.Send(std::string(bytes, 'x')));
    EXPECT_FALSE(gone.HasBeenNotified());
    peer.Close();
    Await(gone);
  }
}

TEST_F(HttpServerTest, AConnectionEndsAfterAnAnswerBehindWhichTooMuchWasSent) {
  Start();
  HttpPeer peer(port());
  peer.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  const Exchange exchange = handed_.Take();
  // More than the system keeps, so that the server has read most of it when it is sent.
  EXPECT_TRUE(peer.Send("POST /handed HTTP/1.1\r\nHost: h\r\nContent-Length: 16000000\r\n\r\n" +
                        std::string(16'000'000, 'x')));
  exchange->Respond({.body = "first"});
  EXPECT_EQ(peer.Read().body, "first");
  EXPECT_TRUE(peer.AwaitEnd());
  EXPECT_TRUE(handed_.IsEmpty());
}

TEST_F(HttpServerTest, WhoeverAsksAfterTheClientHasGoneIsToldAtOnce) {
  Start();
  HttpPeer peer(port());
  peer.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  const Exchange exchange = handed_.Take();
  peer.Close();
  while (server_->use().open > 0) std::this_thread::yield();
  bool called = false;
  exchange->OnGone([&called] { called = true; });
  EXPECT_TRUE(called);
}

TEST_F(HttpServerTest, AClientThatEndsItsSideStillGetsAnAnswerThatIsThere) {
  Start();
  HttpPeer peer(port());
  peer.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  peer.EndWriting();
  EXPECT_EQ(peer.Read().body, "hello");
}

}  // namespace
}  // namespace tandem::http_connections_test
