#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/json.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/support/http_peer.h"
#include "tests/support/test_cluster.h"

namespace tandem {

// A router that speaks HTTP and its workers, which serve all tests of a suite. Every test leaves
// them idle. `Json` is the type of bodies: with or without the order of their fields.
template <typename Json>
class HttpClusterFixture : public testing::Test {
 protected:
  static void SetUpTestSuite() { Serve({}); }
  static void TearDownTestSuite() {
    delete cluster_;
    cluster_ = nullptr;
  }
  void TearDown() override { cluster_->WaitUntilIdle(); }

  // Instead of the default cluster, for a SetUpTestSuite of the suite's own.
  static void Serve(TestClusterOptions options) {
    port_ = FreePort();
    options.router_flags.push_back(fmt::format("--http-port={}", port_));
    cluster_ = new TestCluster(std::move(options));
  }

  // The answer to a whole body, on a connection of its own.
  static HttpReply Send(std::string_view path, const Json& body) {
    HttpReply reply = HttpPeer(port_).Post(path, body.dump());
    EXPECT_TRUE(reply.is_whole);
    return reply;
  }
  // The answer, which must have this status.
  static Json Post(std::string_view path, const Json& body, int status = 200) {
    const HttpReply reply = Send(path, body);
    EXPECT_EQ(reply.status, status) << reply.body;
    if constexpr (std::is_same_v<Json, OrderedJson>) {
      return ParseOrderedJson(reply.body).value;
    } else {
      return ParseJson(reply.body);
    }
  }

  static inline TestCluster* cluster_ = nullptr;
  static inline uint16_t port_ = 0;
};

}  // namespace tandem
