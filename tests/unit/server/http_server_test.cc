// The HTTP server over real sockets, by bytes.

#include "server/http/http_server.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/http_peer.h"
#include "tests/support/wait_limit.h"

namespace tandem::http_server_test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using Exchange = std::shared_ptr<HttpExchange>;

// Where a handler leaves an exchange for the test.
class Handed {
 public:
  void Put(Exchange exchange) {
    absl::MutexLock lock(&mutex_);
    exchanges_.push_back(std::move(exchange));
  }
  Exchange Take(CallSite line = CallSite::Current()) {
    absl::MutexLock lock(&mutex_);
    AwaitWithin(mutex_, absl::Condition(this, &Handed::HasOne), "an HTTP request", line);
    Exchange exchange = std::move(exchanges_.front());
    exchanges_.erase(exchanges_.begin());
    return exchange;
  }
  bool IsEmpty() {
    absl::MutexLock lock(&mutex_);
    return !HasOne();
  }

 private:
  bool HasOne() const ABSL_NO_THREAD_SAFETY_ANALYSIS { return !exchanges_.empty(); }

  absl::Mutex mutex_;
  std::vector<Exchange> exchanges_ ABSL_GUARDED_BY(mutex_);
};

class HttpServerTest : public ::testing::Test {
 protected:
  // /handed gives its requests to the test, /echo answers with the body.
  HttpServer& Start(HttpServerOptions options = {}) {
    std::vector<HttpRoute> routes = {
        {.method = "GET", .path = "/handed", .handler = [this](Exchange e) { handed_.Put(e); }},
        {.method = "POST", .path = "/handed", .handler = [this](Exchange e) { handed_.Put(e); }},
        {.method = "POST",
         .path = "/echo",
         .handler = [](Exchange e) { e->Respond({.body = e->request().body}); }},
        {.method = "GET",
         .path = "/hello",
         .handler = [](Exchange e) { e->Respond({.body = "hello"}); }},
        {.method = "DELETE", .path = "/hello", .handler = [](Exchange) {}},
        {.method = "GET",
         .path = "/deep/",
         .handler = [](Exchange e) { e->Respond({.body = e->request().path}); },
         .match = HttpMatch::kPrefix},
        {.method = "GET", .path = "/throws", .handler = [](Exchange) { throw std::bad_alloc(); }}};
    auto server = HttpServer::Start(options, std::move(routes));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    return *server_;
  }
  uint16_t port() const { return server_->port(); }
  // A request for /handed on `peer`, and its stream.
  std::shared_ptr<HttpStream> StreamTo(HttpPeer& peer, HttpStreamStart start = {}) {
    peer.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
    exchange_ = handed_.Take();
    return exchange_->StartStream(std::move(start));
  }

  Handed handed_;
  Exchange exchange_;
  std::unique_ptr<AnswerBuffers> answers_;  // null unless the test counts; outlives the server
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, RequestsOfOneConnectionAreAnsweredOneAfterTheOther) {
  Start();
  HttpPeer peer(port());
  peer.Send(
      "GET /handed HTTP/1.1\r\nHost: h\r\n\r\n"
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nok"
      "GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  const Exchange first = handed_.Take();
  EXPECT_THAT(first->request().remote, HasSubstr("127.0.0.1:"));
  EXPECT_TRUE(handed_.IsEmpty());
  first->Respond({.status = 201, .body = "first", .content_type = "text/plain"});
  const HttpReply reply = peer.Read();
  EXPECT_EQ(reply.status, 201);
  EXPECT_EQ(reply.body, "first");
  EXPECT_EQ(reply.Header("content-type"), "text/plain");
  EXPECT_EQ(peer.Read().body, "ok");
  handed_.Take()->Respond({.body = "third"});
  EXPECT_EQ(peer.Read().body, "third");
  EXPECT_EQ(server_->use().open, 1);
  EXPECT_EQ(server_->use().requests, 3u);
}

TEST_F(HttpServerTest, HeadHasTheHeadersOfGetAndOptionsNameTheMethods) {
  Start();
  HttpPeer peer(port());
  peer.Send("HEAD /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(peer.Read("HEAD").Header("Content-Length"), "5");
  peer.Send("OPTIONS /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  const HttpReply options = peer.Read();
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.Header("Allow"), "GET, HEAD, DELETE, OPTIONS");
  EXPECT_EQ(peer.Get("/hello").body, "hello");
  EXPECT_EQ(peer.Get("/deep/er/path?x=/").body, "/deep/er/path");
}

TEST_F(HttpServerTest, WhatIsNotServedIsAnErrorInJson) {
  Start();
  HttpPeer peer(port());
  const HttpReply missing = peer.Get("/v1/elsewhere");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(missing.Header("Content-Type"), "application/json");
  const auto error = ParseJson(missing.body)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("/v1/elsewhere"));
  EXPECT_TRUE(error.contains("param") && error.contains("code"));
  const HttpReply wrong = peer.Post("/hello", "x");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.Header("Allow"), "GET, HEAD, DELETE, OPTIONS");
  EXPECT_EQ(peer.Get("/hello").status, 200) << "the connection goes on";
}

TEST_F(HttpServerTest, AHandlerThatAnswersNothingAnswers500) {
  Start();
  HttpPeer peer(port());
  peer.Send("DELETE /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(peer.Read().status, 500);
  EXPECT_EQ(peer.Get("/throws").status, 500);
  EXPECT_EQ(peer.Get("/hello").status, 200);
}

TEST_F(HttpServerTest, TooLargeABodyIsRefusedBeforeItIsSent) {
  Start({.max_body_bytes = 1000});
  HttpPeer peer(port());
  peer.Send("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 1001\r\n\r\n");
  const HttpReply reply = peer.Read();
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.Header("Connection"), "close");
  EXPECT_THAT(reply.body, HasSubstr("1000"));
  peer.Close();
  EXPECT_EQ(HttpPeer(port()).Post("/echo", std::string(1000, 'x')).body.size(), 1000u);
}

TEST_F(HttpServerTest, BodiesTogetherAreBoundedUntilTheyAreTaken) {
  Start({.max_body_bytes = 1000, .max_total_body_bytes = 1500});
  HttpPeer first(port());
  first.Send("POST /handed HTTP/1.1\r\nHost: h\r\nContent-Length: 800\r\n\r\n" +
             std::string(800, 'x'));
  const Exchange exchange = handed_.Take();
  const HttpReply refused = HttpPeer(port()).Post("/echo", std::string(800, 'y'));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.Header("Retry-After"), "1");
  EXPECT_EQ(HttpPeer(port()).Post("/echo", std::string(700, 'y')).status, 200);
  EXPECT_EQ(exchange->TakeBody(), std::string(800, 'x'));
  EXPECT_EQ(exchange->request().body, "");
  exchange->Respond({.body = "done"});
  EXPECT_EQ(first.Read().body, "done");
  EXPECT_EQ(HttpPeer(port()).Post("/echo", std::string(800, 'y')).status, 200);
}

TEST_F(HttpServerTest, ALargeBodyArrivesWholeInPiecesAndInChunks) {
  Start();
  std::string body;
  for (int i = 0; i < 300'000; ++i) body += fmt::format("{} ", i);
  HttpPeer peer(port());
  EXPECT_EQ(peer.Post("/echo", body).body, body);
  std::string chunks;
  for (size_t at = 0; at < body.size(); at += 10'000) {
    const std::string part = body.substr(at, 10'000);
    chunks += fmt::format("{:x}\r\n{}\r\n", part.size(), part);
  }
  peer.Send("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks +
            "0\r\n\r\n");
  EXPECT_EQ(peer.Read().body, body);
}

TEST_F(HttpServerTest, AnExpectedContinueIsSentBeforeTheBody) {
  Start();
  HttpPeer peer(port());
  peer.Send("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(peer.Read().status, 100);
  peer.Send("ok");
  EXPECT_EQ(peer.Read().body, "ok");
}

TEST_F(HttpServerTest, NothingIsServedAfterARefusedRequest) {
  Start();
  HttpPeer peer(port());
  peer.Send(
      "POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\n\r\nGET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(peer.Read().status, 400);
  EXPECT_EQ(peer.ReadThrough("HTTP/"), "");
  EXPECT_TRUE(handed_.IsEmpty());
}

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

TEST_F(HttpServerTest, AClientThatEndsItsSideStillGetsAnAnswerThatIsThere) {
  Start();
  HttpPeer peer(port());
  peer.Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
  peer.EndWriting();
  EXPECT_EQ(peer.Read().body, "hello");
}

TEST_F(HttpServerTest, DrainingLetsAnswersEndAndTakesNothingNew) {
  HttpServer& server = Start();
  HttpPeer idle(port());
  EXPECT_EQ(idle.Get("/hello").status, 200);
  HttpPeer busy(port());
  const auto stream = StreamTo(busy);
  std::thread drain(
      [&server] { server.Drain(std::chrono::steady_clock::now() + std::chrono::minutes(1)); });
  EXPECT_TRUE(idle.AwaitEnd());
  ASSERT_TRUE(stream->Push("last", Pace::kLive));
  stream->Close();
  const HttpReply reply = busy.Read();
  EXPECT_TRUE(reply.is_whole);
  EXPECT_EQ(reply.body, "last");
  drain.join();
  EXPECT_EQ(server.use().open, 0);
}

TEST_F(HttpServerTest, ARequestThatWaitsWhenTheServerEndsIsAnswered) {
  Start();
  HttpPeer peer(port());
  peer.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  const Exchange exchange = handed_.Take();
  server_.reset();
  const HttpReply reply = peer.Read();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.Header("Retry-After"), "1");
  EXPECT_EQ(reply.Header("Connection"), "close");
  exchange->Respond({.body = "late"});
}

TEST_F(HttpServerTest, ExchangesAndStreamsOutliveTheServer) {
  Start();
  HttpPeer one(port());
  const auto stream = StreamTo(one);
  HttpPeer other(port());
  other.Send("GET /handed HTTP/1.1\r\nHost: h\r\n\r\n");
  const Exchange exchange = handed_.Take();
  bool gone = false;
  exchange->OnGone([&gone] { gone = true; });
  server_.reset();
  EXPECT_TRUE(gone);
  EXPECT_TRUE(stream->Push("late", Pace::kLive));
  stream->Close();
  exchange->Respond({.body = "late"});
  EXPECT_FALSE(one.Read().is_whole);
}

TEST_F(HttpServerTest, SeveralThreadsServeManyConnections) {
  Start({.io_threads = 3});
  std::vector<std::unique_ptr<HttpPeer>> peers;
  for (int i = 0; i < 30; ++i) peers.push_back(std::make_unique<HttpPeer>(port()));
  for (int round = 0; round < 3; ++round) {
    for (auto& peer : peers) peer->Send("GET /hello HTTP/1.1\r\nHost: h\r\n\r\n");
    for (auto& peer : peers) EXPECT_EQ(peer->Read().body, "hello");
  }
  EXPECT_EQ(server_->use().requests, 90u);
}

TEST_F(HttpServerTest, APortThatIsTakenIsNamed) {
  Start();
  const auto second = HttpServer::Start({.port = port()}, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr(fmt::format("127.0.0.1:{}", port())));
}

}  // namespace
}  // namespace tandem::http_server_test
