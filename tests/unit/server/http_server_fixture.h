#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gtest/gtest.h"
#include "server/http/http_server.h"
#include "tests/support/call_site.h"
#include "tests/support/http_peer.h"
#include "tests/support/wait_limit.h"

namespace tandem::http_server {

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

// A server whose requests the test answers itself, or that answers by its routes alone.
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

}  // namespace tandem::http_server
