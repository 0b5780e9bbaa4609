// What clients may send over HTTP without harm to others: each gets a status that says what is
// wrong, others are served on, and the router's memory stays where it was.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/http_cluster_fixture.h"
#include "tests/support/sanitized.h"

namespace tandem::hostile_http_test {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

constexpr char kCompletions[] = "/v1/completions";
constexpr char kChats[] = "/v1/chat/completions";

// Connections that say too little; make test-long opens as many as a large attack would.
int HalfOpenConnections() {
  const char* const count = std::getenv("TANDEM_HALF_OPEN");
  return count == nullptr ? 600 : std::atoi(count);
}

class HostileHttpTest : public HttpClusterFixture<Json> {
 protected:
  static void SetUpTestSuite() {
    Serve({.prefill = 0, .decode = 0});
    Warm();
  }
  void TearDown() override {
    ExpectServed();
    HttpClusterFixture::TearDown();
  }

  // One body of the largest size that is taken and a few small ones, so that what the allocator
  // keeps is there before memory is compared.
  static void Warm() {
    const std::string filler(12 << 20, ' ');
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(HttpPeer(port_).Post(kCompletions, "{" + filler + "}").status, 400);
    }
    ExpectServed();
  }

  static void ExpectServed() {
    const HttpReply reply =
        HttpPeer(port_).Post(kCompletions, R"({"prompt": "It was", "max_tokens": 2, "seed": 1})");
    EXPECT_EQ(reply.status, 200) << reply.body;
  }

  // The answer's error, which must have this status.
  static Json Refusal(std::string_view path, const std::string& body, int status = 400) {
    const HttpReply reply = HttpPeer(port_).Post(path, body);
    EXPECT_EQ(reply.status, status) << body.substr(0, 200) << reply.body;
    EXPECT_TRUE(reply.is_whole);
    const Json json = ParseJson(reply.body);
    if (!json.is_object() || !json.contains("error")) return {{"message", ""}, {"param", ""}};
    return json["error"];
  }

  // Of the router, resident.
  static int64_t MemoryKib() {
    std::ifstream file(fmt::format("/proc/{}/statm", cluster_->pid("router")));
    int64_t pages = 0;
    file >> pages >> pages;
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
  }

  // That these attacks leave the router no larger, but for `slack`, than the first of them does.
  template <typename Attack>
  static void ExpectFlat(int rounds, int64_t slack_kib, const Attack& attack) {
    attack();
    const int64_t before = MemoryKib();
    for (int i = 0; i < rounds; ++i) attack();
    if (kIsSanitized) return;  // freed memory stays with the sanitizer
    EXPECT_LE(MemoryKib() - before, slack_kib);
  }
};

TEST_F(HostileHttpTest, BrokenJsonIsRefusedWithItsPlace) {
  const struct {
    std::string body;
    const char* says;
  } cases[] = {
      {"", "the body is empty: it must be a JSON object"},
      {"{", "line 1, column 2"},
      {R"({"prompt": "x",})", "line 1, column 16"},
      {"{\"prompt\":\n \"x\"\n \"n\": 1}", "line 3, column 4"},
      {"{'prompt': 'x'}", "line 1, column 2"},
      {R"({"prompt": "x"} {"prompt": "y"})", "line 1, column 17"},
      {R"({"prompt": NaN})", "line 1, column 12"},
      {R"({"prompt": 01})", "line 1, column 13"},
      {"{\"prompt\": \"a\nb\"}", "line 1, column"},
      {"\xEF\xBB\xBF\xEF\xBB\xBF{}", "line 1"},
      {std::string("{\"prompt\": \"a\0b\"}", 17), "line 1, column"},
      {R"({"prompt": "\ud800"})", "line 1, column"},
      {R"({"max_tokens": 1e400, "prompt": "x"})", "too large at line 1, column"},
      {R"([1, 2])", "must be a JSON object; it is an array"},
      {R"("prompt")", "must be a JSON object; it is a string"},
      {"null", "must be a JSON object; it is null"},
  };
  for (const auto& [body, says] : cases) {
    for (const char* path : {kCompletions, kChats, "/tokenize", "/detokenize"}) {
      const Json error = Refusal(path, body);
      EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(says)) << path << " " << body;
    }
  }
}

TEST_F(HostileHttpTest, BytesThatAreNoUtf8AreRefusedWithTheirPlace) {
  for (const char* bytes :
       {"\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "a\x80"}) {
    const std::string text = fmt::format("\"{}\"", bytes);
    EXPECT_THAT(Refusal(kCompletions, "{\"prompt\": " + text + "}")["message"].get<std::string>(),
                HasSubstr("line 1, column 1"));
    Refusal(kCompletions, "{\"prompt\": \"x\", " + text + ": 1}");
    Refusal(kChats, "{\"messages\": [{\"role\": \"user\", \"content\": " + text + "}]}");
  }
  const HttpReply reply = HttpPeer(port_).Get("/v1/models/\xff\xfe");
  EXPECT_EQ(reply.status, 404);
  EXPECT_FALSE(ParseJson(reply.body).is_discarded()) << reply.body;
}

TEST_F(HostileHttpTest, FieldsOfTheWrongTypeOrValueAreNamed) {
  const struct {
    const char* field;
    const char* param;
    int status = 400;
  } cases[] = {
      {R"("model": "gpt-7")", "model", 404},
      {R"("model": 7)", "model"},
      {R"("n": 0)", "n"},
      {R"("n": -1)", "n"},
      {R"("n": 1.5)", "n"},
      {R"("n": 99999999999)", "n"},
      {R"("n": true)", "n"},
      {R"("best_of": -2)", "best_of"},
      {R"("presence_penalty": -2.1)", "presence_penalty"},
      {R"("frequency_penalty": -3)", "frequency_penalty"},
      {R"("repetition_penalty": -1)", "repetition_penalty"},
      {R"("repetition_penalty": 0)", "repetition_penalty"},
      {R"("temperature": -0.1)", "temperature"},
      {R"("temperature": "hot")", "temperature"},
      {R"("temperature": [1])", "temperature"},
      {R"("top_p": 1.1)", "top_p"},
      {R"("top_k": -2)", "top_k"},
      {R"("min_p": -1)", "min_p"},
      {R"("seed": "one")", "seed"},
      {R"("seed": 18446744073709551616)", "seed"},
      {R"("stop": 5)", "stop"},
      {R"("stop": [5])", "stop[0]"},
      {R"("stop": [""])", "stop"},
      {R"("stream": "yes")", "stream"},
      {R"("stream_options": [])", "stream_options"},
      {R"("logit_bias": {"x": 1})", "logit_bias"},
      {R"("logit_bias": {"5": "x"})", "logit_bias.5"},
      {R"("max_tokens": {})", "max_tokens"},
      {R"("user": {})", "user"},
      {R"("stop_token_ids": ["a"])", "stop_token_ids[0]"},
  };
  for (const auto& [field, param, status] : cases) {
    SCOPED_TRACE(field);
    const Json completion =
        Refusal(kCompletions, fmt::format("{{\"prompt\": \"x\", {}}}", field), status);
    EXPECT_EQ(completion["param"], param) << completion;
    const Json chat = Refusal(
        kChats,
        fmt::format("{{\"messages\": [{{\"role\": \"user\", \"content\": \"x\"}}], {}}}", field),
        status);
    EXPECT_EQ(chat["param"], param) << chat;
  }
  for (const char* prompt : {"5", "{}", "[[1], \"x\"]", "[1, \"x\"]", "[1.5]", "[[]]", "[]", "\"\"",
                             "[-1]", "[[[1]]]", "true"}) {
    const Json error = Refusal(kCompletions, fmt::format("{{\"prompt\": {}}}", prompt));
    EXPECT_THAT(error["param"].dump(), HasSubstr("prompt")) << prompt << error;
  }
  for (const char* messages : {"5", "[]", "{}", "[5]", "[{}]", "[{\"role\": 5}]", "[[]]",
                               "[{\"role\": \"user\", \"content\": 5}]", "\"x\"",
                               "[{\"role\": \"user\", \"content\": [5]}]"}) {
    const Json error = Refusal(kChats, fmt::format("{{\"messages\": {}}}", messages));
    EXPECT_THAT(error["param"].dump(), HasSubstr("messages")) << messages << error;
  }
}

TEST_F(HostileHttpTest, AFieldThatComesTwiceIsRefused) {
  for (const char* body :
       {R"({"prompt": "x", "prompt": "y"})", R"({"prompt": "x", "n": 1, "n": 2})",
        R"({"prompt": "x", "\u006e": 1, "n": 2})",
        R"({"prompt": "x", "stream_options": {"a": 1, "a": 1}})"}) {
    EXPECT_THAT(Refusal(kCompletions, body)["message"].get<std::string>(), HasSubstr("twice"));
  }
}

TEST_F(HostileHttpTest, OfTwoLimitsOfAChatTheNewerNameCounts) {
  for (const char* limits : {R"("max_tokens": 9, "max_completion_tokens": 3)",
                             R"("max_completion_tokens": 3, "max_tokens": 9)"}) {
    const HttpReply reply = HttpPeer(port_).Post(
        kChats, fmt::format("{{\"messages\": [{{\"role\": \"user\", \"content\": \"x\"}}], "
                            "\"ignore_eos\": true, {}}}",
                            limits));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(ParseJson(reply.body)["usage"]["completion_tokens"], 3);
  }
}

TEST_F(HostileHttpTest, AMillionLevelsAreRefused) {
  constexpr size_t kDeep = 1'000'000;
  const std::string lists(kDeep, '[');
  std::string objects;
  for (size_t i = 0; i < kDeep; ++i) objects += "{\"a\":";
  std::string escaped;  // in a string, which is parsed once more
  for (size_t i = 0; i < kDeep; ++i) escaped += "{\\\"a\\\":";
  const std::string call =
      "{\"max_tokens\": 1, \"messages\": [{\"role\": \"assistant\", \"tool_calls\": [{\"type\": "
      "\"function\", "
      "\"function\": {\"name\": \"f\", \"arguments\": \"";
  ExpectFlat(3, 8 << 10, [&] {
    for (const std::string& body :
         {lists, objects, "{\"prompt\": " + lists + std::string(kDeep, ']') + "}",
          "{\"stop\": " + objects}) {
      EXPECT_THAT(Refusal(kCompletions, body)["message"].get<std::string>(), HasSubstr("64 deep"));
    }
    EXPECT_THAT(Refusal(kChats, "{\"messages\": " + lists)["message"].get<std::string>(),
                HasSubstr("64 deep"));
    // The sample model's template does not look at calls, so that they need not be parsed.
    for (const std::string& arguments : {escaped, lists + std::string(kDeep, ']')}) {
      const int status = HttpPeer(port_).Post(kChats, call + arguments + "\"}}]}]}").status;
      EXPECT_TRUE(status == 200 || status == 400) << status;
    }
  });
}

// Small in bytes and large once they are parsed.
TEST_F(HostileHttpTest, MillionsOfEmptyListsAreRefused) {
  std::string lists = "{\"prompt\": [";
  while (lists.size() < size_t{12} << 20) lists += "[],";
  lists += "[]]}";
  std::string messages = "{\"messages\": [";
  while (messages.size() < size_t{12} << 20) messages += "{},";
  messages += "{}]}";
  ExpectFlat(3, 8 << 10, [&] {
    EXPECT_THAT(Refusal(kCompletions, lists)["message"].get<std::string>(), HasSubstr("100000"));
    EXPECT_THAT(Refusal(kChats, messages)["message"].get<std::string>(), HasSubstr("100000"));
  });
}

// A body of 100 MB whose client sends all of it before it reads.
TEST_F(HostileHttpTest, BodiesOf100MegabytesAreRefused) {
  constexpr size_t kBytes = 100'000'000;
  // The allocator may keep the largest body that is taken, but not one for each round.
  constexpr int64_t kOneBodyKib = 20 << 10;
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
