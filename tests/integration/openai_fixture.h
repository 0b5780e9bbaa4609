#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/support/http_cluster_fixture.h"

namespace tandem {

// Asks a router and its workers through OpenAI's API, whole and streamed.
class OpenAiTest : public HttpClusterFixture<nlohmann::json> {
 public:
  using Json = nlohmann::json;

  // The events of a stream but for its end.
  static std::vector<Json> Stream(std::string_view path, Json body) {
    body["stream"] = true;
    const HttpReply reply = Send(path, body);
    EXPECT_EQ(reply.status, 200) << reply.body;
    std::vector<Json> events;
    std::string_view rest = reply.body;
    while (rest.starts_with("data: {")) {
      const size_t end = rest.find("\n\n");
      events.push_back(ParseJson(rest.substr(6, end - 6)));
      rest.remove_prefix(end + 2);
    }
    EXPECT_EQ(rest, "data: [DONE]\n\n");
    return events;
  }

 protected:
  Client& client() { return cluster_->client(); }
};

}  // namespace tandem
