// More over HTTP than can be served at a time, clients that do not read, and a router that ends:
// every request gets an answer, and memory is bounded.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/http_peer.h"
#include "tests/support/sanitized.h"
#include "tests/support/test_cluster.h"

namespace tandem::http_overload_test {
namespace {

using Json = nlohmann::json;

constexpr char kCompletions[] = "/v1/completions";

std::string PostText(std::string_view path, const std::string& body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{}", path,
                     body.size(), body);
}

// A router with these flags and one worker.
class HttpOverloadTest : public testing::Test {
 protected:
  TestCluster& Start(std::vector<std::string> flags) {
    port_ = FreePort();
    flags.push_back(fmt::format("--http-port={}", port_));
    cluster_ = std::make_unique<TestCluster>(
        TestClusterOptions{.prefill = 0, .decode = 0, .router_flags = std::move(flags)});
    return *cluster_;
  }
  int64_t RouterKib() const {
    std::ifstream file(fmt::format("/proc/{}/statm", cluster_->pid("router")));
    int64_t pages = 0;
    file >> pages >> pages;
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
  }
  // The answers to so many requests that are sent at the same time on connections of their own.
  std::vector<HttpReply> AskAtOnce(int count, const Json& fields) const {
    std::vector<std::future<HttpReply>> asked;
    for (int i = 0; i < count; ++i) {
      Json body = fields;
      body["seed"] = i;
      asked.push_back(std::async(std::launch::async, [port = port_, text = body.dump()] {
        return HttpPeer(port).Post(kCompletions, text);
      }));
    }
    std::vector<HttpReply> replies;
    for (auto& one : asked) replies.push_back(one.get());
    return replies;
  }

  uint16_t port_ = 0;
  std::unique_ptr<TestCluster> cluster_;
};

TEST_F(HttpOverloadTest, ABurstIsAnsweredOrToldWhenToComeAgain) {
  constexpr int kClients = 64;
  TestCluster& cluster = Start({"--max-in-flight=4"});
  const Json fields = {{"prompt", "It was"}, {"max_tokens", 40}, {"ignore_eos", true}};
  cluster.Signal("unified-0", SIGSTOP);  // what was admitted stays until all have asked
  auto asked = std::async(std::launch::async, [&] { return AskAtOnce(kClients, fields); });
  cluster.WaitFor("the requests that may be in flight",
                  [](const v1::GetStatusResponse& now) { return now.requests_in_flight() == 4; });
  // The others are refused while these stand still.
  while (HttpGet(port_, "/load").status != 200) continue;
  cluster.Signal("unified-0", SIGCONT);
  const std::vector<HttpReply> replies = asked.get();
  int answered = 0;
  for (const HttpReply& reply : replies) {
    EXPECT_TRUE(reply.is_whole) << reply.head;
    if (reply.status == 200) {
      ++answered;
      EXPECT_EQ(ParseJson(reply.body)["usage"]["completion_tokens"], 40);
      continue;
    }
    EXPECT_EQ(reply.status, 429) << reply.head << reply.body;
    EXPECT_FALSE(reply.Header("retry-after").empty()) << reply.head;
    EXPECT_FALSE(reply.Header("retry-after-ms").empty());
    EXPECT_EQ(reply.Header("x-should-retry"), "true");
  }
  EXPECT_GE(answered, 4);
  cluster.WaitUntilIdle();
  for (const HttpReply& reply : AskAtOnce(4, fields)) EXPECT_EQ(reply.status, 200) << reply.body;
}

TEST_F(HttpOverloadTest, ABurstOfConnectionsIsAnsweredOrToldWhenToComeAgain) {
  Start({"--max-connections=8"});
  int answered = 0;
  for (const HttpReply& reply :
       AskAtOnce(48, {{"prompt", "It was"}, {"max_tokens", 200}, {"ignore_eos", true}})) {
    EXPECT_TRUE(reply.is_whole) << "status " << reply.status << reply.head;
    if (reply.status == 200) {
      ++answered;
      continue;
    }
    EXPECT_EQ(reply.status, 503) << reply.head << reply.body;
    EXPECT_FALSE(reply.Header("retry-after").empty()) << reply.head;
  }
  EXPECT_GE(answered, 8);
  EXPECT_EQ(HttpPeer(port_).Post(kCompletions, R"({"prompt": "x", "max_tokens": 1})").status, 200);
}

// Their streams are far larger than what the system and the router keep for them.
TEST_F(HttpOverloadTest, ClientsThatNeverReadHoldNoMoreThanTheirBuffers) {
  constexpr int kSlow = 6;
  constexpr int64_t kBufferKib = 64;
  TestCluster& cluster = Start({fmt::format("--stream-buffer-bytes={}KiB", kBufferKib)});
  EXPECT_EQ(HttpPeer(port_).Post(kCompletions, R"({"prompt": "x", "max_tokens": 1})").status, 200);
  const int64_t before = RouterKib();
  const std::string body = Json({{"prompt", "It was"},
                                 {"max_tokens", 1900},
                                 {"ignore_eos", true},
                                 {"n", 2},
                                 {"logprobs", 20},
                                 {"stream", true}})
                               .dump();
  std::vector<std::unique_ptr<HttpPeer>> slow;
  for (int i = 0; i < kSlow; ++i) {
    slow.push_back(std::make_unique<HttpPeer>(port_, 4096));
    slow.back()->Send(PostText(kCompletions, body));
  }
  uint64_t most = 0;
  int64_t most_kib = 0;
  cluster.WaitFor("the slow ones to be ended", [&](const v1::GetStatusResponse& now) {
    most = std::max(most, now.answers().bytes());
    most_kib = std::max(most_kib, RouterKib());
    EXPECT_EQ(HttpPeer(port_).Post(kCompletions, R"({"prompt": "x", "max_tokens": 1})").status, 200)
        << "others go on";
    return now.requests_total() >= kSlow && now.requests_in_flight() == 0;
  });
  EXPECT_LE(most, uint64_t{kSlow} * (kBufferKib << 10));
  if (!kIsSanitized) {
    EXPECT_LE(most_kib - before, kSlow * kBufferKib * 2 + (16 << 10));
  }
  for (const auto& peer : slow) {
    const std::string stream = peer->ReadThrough("[DONE]");
    EXPECT_TRUE(stream.starts_with("HTTP/1.1 200 OK"));
    EXPECT_EQ(stream.find("\"finish_reason\":\"length\""), std::string::npos);
  }
  cluster.WaitUntilIdle();
}

// Texts of megabytes keep the tokenizer busy while the router is told to end.
TEST_F(HttpOverloadTest, WhatWaitsToBeTokenizedWhenTheRouterEndsIsAnswered) {
  TestCluster& cluster = Start({"--tokenize-threads=1"});
  std::string text;
  while (text.size() < size_t{3} << 20) text += "It was a fine morning; ";
  const std::string tokenize = PostText("/tokenize", Json({{"prompt", text}}).dump());
  const std::string chat = PostText(
      "/v1/chat/completions",
      Json({{"messages", {{{"role", "user"}, {"content", "It was"}}}}, {"max_tokens", 3}}).dump());
  std::vector<std::unique_ptr<HttpPeer>> busy;
  for (int i = 0; i < 3; ++i) {
    busy.push_back(std::make_unique<HttpPeer>(port_));
    ASSERT_TRUE(busy.back()->Send(tokenize));
  }
  cluster.WaitFor("texts that wait", [](const v1::GetStatusResponse& now) {
    return now.tokenizing().long_texts() >= 2;
  });
  std::vector<std::unique_ptr<HttpPeer>> chats;
  for (int i = 0; i < 20; ++i) {
    chats.push_back(std::make_unique<HttpPeer>(port_));
    ASSERT_TRUE(chats.back()->Send(chat));
  }
  cluster.WaitFor("chats that wait", [](const v1::GetStatusResponse& now) {
    return now.tokenizing().short_texts() > 0 || now.tokenizing().long_texts() == 0;
  });
  cluster.Signal("router", SIGTERM);
  int refused = 0;
  for (auto* peers : {&busy, &chats}) {
    for (const auto& peer : *peers) {
      const HttpReply reply = peer->Read();
      EXPECT_TRUE(reply.is_whole) << reply.head;
      if (reply.status == 200) continue;
      EXPECT_EQ(reply.status, 503) << reply.head << reply.body;
      EXPECT_FALSE(reply.Header("retry-after").empty()) << reply.head;
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_EQ(cluster.AwaitExit("router"), 0);
}

}  // namespace
}  // namespace tandem::http_overload_test
