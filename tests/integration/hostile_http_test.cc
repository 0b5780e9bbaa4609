// Connections and requests that clients may open over HTTP without harm to others: each gets a status
// that says what is wrong, others are served on, and the router's memory stays where it was.

#include <sys/resource.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/integration/hostile_http_fixture.h"

namespace tandem::hostile_http_test {
namespace {

using ::testing::HasSubstr;

// Connections that say too little; make test-long opens as many as a large attack would.
int HalfOpenConnections() {
  const char* const count = std::getenv("TANDEM_HALF_OPEN");
  return count == nullptr ? 600 : std::atoi(count);
}

// A body of 100 MB whose client sends all of it before it reads.
TEST_F(HostileHttpTest, BodiesOf100MegabytesAreRefused) {
  constexpr size_t kBytes = 100'000'000;
  // The allocator may keep the largest body that is taken, 16 MiB, and what it had before it grew to
  // that, but not one body for each round.
  constexpr int64_t kOneBodyKib = 32 << 10;
  const std::string piece = std::string(1'000'000, ' ');
  ExpectFlat(3, kOneBodyKib, [&] {
    HttpPeer announced(port_);
    EXPECT_TRUE(announced.Send(fmt::format(
        "POST {} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", kCompletions, kBytes)));
    for (size_t sent = 0; sent < kBytes; sent += piece.size()) {
      ASSERT_TRUE(announced.Send(piece));
    }
    const HttpReply reply = announced.Read();
    EXPECT_EQ(reply.status, 413);
    EXPECT_THAT(reply.body, HasSubstr("16777216"));
    EXPECT_TRUE(announced.AwaitEnd());
  });
  ExpectFlat(3, kOneBodyKib, [&] {
    HttpPeer chunked(port_);
    EXPECT_TRUE(chunked.Send(fmt::format(
        "POST {} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", kCompletions)));
    const std::string chunk = fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
    for (size_t sent = 0; sent < kBytes; sent += piece.size()) ASSERT_TRUE(chunked.Send(chunk));
    EXPECT_EQ(chunked.Read().status, 413);
    EXPECT_TRUE(chunked.AwaitEnd());
  });
}

TEST_F(HostileHttpTest, HeaderBombsAreRefused) {
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += fmt::format("X-{}: y\r\n", i);
  const std::string endless(10'000'000, 'x');
  const std::string start = "GET /v1/models HTTP/1.1\r\nHost: h\r\n";
  ExpectFlat(3, 4 << 10, [&] {
    for (const std::string& bomb :
         {start + many, absl::StrCat(start, "X: ", endless), start + endless, "GET /" + endless,
          absl::StrCat(start, "Cookie: ", std::string(17 << 10, 'c'), "\r\n\r\n")}) {
      HttpPeer peer(port_);
      EXPECT_TRUE(peer.Send(bomb));
      const HttpReply reply = peer.Read();
      EXPECT_EQ(reply.status, 431) << bomb.substr(0, 60);
      EXPECT_TRUE(peer.AwaitEnd());
    }
    HttpPeer trailers(port_);
    EXPECT_TRUE(trailers.Send(fmt::format("POST {} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                                          "chunked\r\n\r\n2\r\n{{}}\r\n0\r\n",
                                          kCompletions) +
                              many));
    EXPECT_EQ(trailers.Read().status, 400);
    HttpPeer extension(port_);
    EXPECT_TRUE(extension.Send(fmt::format("POST {} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                                           "chunked\r\n\r\n2;",
                                           kCompletions) +
                               endless));
    EXPECT_EQ(extension.Read().status, 400);
  });
}

// Each has another request behind it, which one reading of its length hides and another one shows.
TEST_F(HostileHttpTest, NoRequestIsSmuggled) {
  const std::string hidden = "GET /v1/models HTTP/1.1\r\nHost: h\r\n\r\n";
  const std::string length = fmt::format("Content-Length: {}\r\n", hidden.size());
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  const std::string last = "0\r\n\r\n";
  const std::vector<std::string> requests = {
      length + chunked + "\r\n" + last,
      chunked + length + "\r\n" + last,
      length + "Content-Length: 0\r\n\r\n",
      "Content-Length: 0\r\n" + length + "\r\n",
      "Content-Length: 0, 5\r\n\r\n",
      "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
      "Transfer-Encoding : chunked\r\n" + length + "\r\n",
      "Content-Length : 0\r\n\r\n",
      "Transfer-Encoding: xchunked\r\n\r\n" + last,
      "Transfer-Encoding: chunked, identity\r\n\r\n" + last,
      "Transfer-Encoding: identity, chunked\r\n\r\n" + last,
      chunked + "Transfer-Encoding: x\r\n\r\n" + last,
      "Transfer-Encoding: \"chunked\"\r\n\r\n" + last,
      "Transfer-Encoding:\x0b"
      "chunked\r\n\r\n" +
          last,
      "Transfer-Encoding: chunked\x0b\r\n\r\n" + last,
      "Transfer-Encoding:\r\n chunked\r\n\r\n" + last,
      "X: y\r\n Transfer-Encoding: chunked\r\n\r\n" + last,
      "X: y\nTransfer-Encoding: chunked\r\n\r\n" + last,
      "X: y\rTransfer-Encoding: chunked\r\n\r\n" + last,
      "Content-Length: 0\n\n",
      "\tContent-Length: 0\r\n\r\n",
      "Content-Length: 0x10\r\n\r\n",
      "Content-Length: +0\r\n\r\n",
      "Content-Length: 18446744073709551616\r\n\r\n",
      chunked + "\r\n2\n{}\r\n0\r\n\r\n",
      chunked + "\r\n2\r\n{}\n0\r\n\r\n",
      chunked + "\r\n2\r\n{}0\r\n\r\n",
      chunked + "\r\n0x2\r\n{}\r\n0\r\n\r\n",
      chunked + "\r\n10000000000000002\r\n{}\r\n0\r\n\r\n",
      chunked + "\r\n-2\r\n{}\r\n0\r\n\r\n",
      chunked + "\r\n2 \n{}\r\n0\r\n\r\n",
      chunked + "\r\n2;a\n{}\r\n0\r\n\r\n",
  };
  for (const std::string& request : requests) {
    HttpPeer peer(port_);
    peer.Send(absl::StrCat("POST ", kCompletions, " HTTP/1.1\r\nHost: h\r\n", request, hidden));
    const HttpReply reply = peer.Read();
    EXPECT_TRUE(reply.status == 400 || reply.status == 501) << reply.status << "\n" << request;
    EXPECT_EQ(peer.ReadThrough("HTTP/1.1"), "") << "a second answer to\n" << request;
  }
}

TEST_F(HostileHttpTest, HalfOpenConnectionsDoNotStopOthers) {
  const uint16_t port = FreePort();
  const int half_open = HalfOpenConnections();
  // make test-long has them at the default limit, which they exceed as well.
  std::vector<std::string> flags = {fmt::format("--http-port={}", port)};
  if (half_open < 4096) flags.push_back("--max-connections=200");
  rlimit descriptors{};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  descriptors.rlim_cur = descriptors.rlim_max;
  setrlimit(RLIMIT_NOFILE, &descriptors);
  ASSERT_GE(descriptors.rlim_cur, static_cast<rlim_t>(half_open) + 100)
      << "raise the limit on open files (ulimit -n)";
  TestCluster cluster({.prefill = 0, .decode = 0, .router_flags = flags});
  const std::vector<std::string> starts = {
      "", "G", "POST /v1/completions HTTP/1.1\r\nHost: h\r\nX-Slow:",
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 1000\r\n\r\n{"};
  std::vector<std::unique_ptr<HttpPeer>> peers;
  for (int i = 0; i < half_open; ++i) {
    peers.push_back(std::make_unique<HttpPeer>(port));
    peers.back()->Send(starts[static_cast<size_t>(i) % starts.size()]);
    if (i % (half_open / 10) != 0) continue;
    const HttpReply reply =
        HttpPeer(port).Post(kCompletions, R"({"prompt": "It was", "max_tokens": 2})");
    EXPECT_EQ(reply.status, 200) << "behind " << i << " half-open connections: " << reply.body;
  }
  EXPECT_EQ(HttpGet(port, "/health").status, 200);
  const HttpReply metrics = HttpGet(port, "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.body, HasSubstr("tandem_http_connections_evicted_total"));
}

TEST_F(HostileHttpTest, AClientThatGoesInTheMiddleOfAnAnswerIsCancelled) {
  constexpr int kLong = 1900;
  for (const bool stream : {true, false}) {
    const std::string body =
        Json(
            {{"prompt", "It was"}, {"max_tokens", kLong}, {"ignore_eos", true}, {"stream", stream}})
            .dump();
    const std::string request =
        fmt::format("POST {} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{}", kCompletions,
                    body.size(), body);
    using Leave = void (*)(HttpPeer&);
    for (const Leave leave :
         {Leave([](HttpPeer& peer) { peer.Close(); }), Leave([](HttpPeer& peer) { peer.Reset(); }),
          Leave([](HttpPeer& peer) { peer.EndWriting(); }), Leave([](HttpPeer& peer) {
            peer.Send(std::string(1 << 20, 'x'));
            peer.Close();
          })}) {
      HttpPeer peer(port_);
      ASSERT_TRUE(peer.Send(request));
      cluster_->WaitFor("the request to be in work", [](const v1::GetStatusResponse& status) {
        const v1::WorkerStatus* worker = FindWorker(status, "unified-0");
        return worker != nullptr && BlocksInUse(*worker) > 0;
      });
      if (stream) {
        EXPECT_THAT(peer.ReadThrough("\"text\""), HasSubstr("200 OK"));
      }
      leave(peer);
      cluster_->WaitUntilIdle();
    }
  }
}

}  // namespace
}  // namespace tandem::hostile_http_test
