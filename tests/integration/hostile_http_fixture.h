#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>

#include "base/json.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/http_cluster_fixture.h"
#include "tests/support/sanitized.h"

namespace tandem {

// A router and a worker that are attacked over HTTP: after each test they must serve on, and the
// router's memory can be compared with what it was.
class HostileHttpTest : public HttpClusterFixture<nlohmann::json> {
 protected:
  using Json = nlohmann::json;

  static constexpr char kCompletions[] = "/v1/completions";
  static constexpr char kChats[] = "/v1/chat/completions";

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

}  // namespace tandem
