// The HTTP server over real sockets, by bytes: requests and their bodies, and how the server ends.

#include "server/http/http_server.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/http_peer.h"
#include "tests/unit/server/http_server_fixture.h"

namespace tandem::http_server_test {
namespace {

using http_server::Exchange;
using http_server::HttpServerTest;
using ::testing::HasSubstr;

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
