// API keys, and limits of their tenants, of a router that runs.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "server/access/api_keys.h"
#include "tests/support/http_cluster_fixture.h"
#include "tests/support/read_file.h"

namespace tandem::access_test {
namespace {

using Json = nlohmann::json;

constexpr char kUser[] = "secret-of-user";
constexpr char kAdmin[] = "secret-of-admin";
constexpr char kLimited[] = "secret-of-limited";

void Add(AccessFile& file, const std::string& id, const std::string& secret,
         std::vector<Scope> scopes) {
  ASSERT_TRUE(
      file.Add({.id = id, .sha256 = HashOfSecret(secret), .tenant = id, .scopes = scopes}).ok());
}

class AccessTest : public HttpClusterFixture<Json> {
 protected:
  static void SetUpTestSuite() {
    path_ = testing::TempDir() + "access_test.json";
    AccessFile file;
    Add(file, "user", kUser, {Scope::kGenerate});
    Add(file, "admin", kAdmin, {Scope::kGenerate, Scope::kAdmin});
    Add(file, "limited", kLimited, {Scope::kGenerate});
    Json json = ParseJson(file.ToJson());
    json["tenants"]["limited"]["requests_per_minute"] = 1;
    Write(json);
    setenv("TANDEM_API_KEY", kAdmin, 1);
    Serve({.prefill = 0, .decode = 0, .router_flags = {"--access-file=" + path_}});
  }
  static void TearDownTestSuite() {
    HttpClusterFixture::TearDownTestSuite();
    unsetenv("TANDEM_API_KEY");
    std::filesystem::remove(path_);
  }
  static void Write(const Json& json) {
    std::ofstream(path_ + ".new") << json.dump();
    std::filesystem::rename(path_ + ".new", path_);
  }

  // Asks over gRPC with this key; nothing: without one.
  static absl::Status AskWith(const std::optional<std::string>& secret) {
    secret ? setenv("TANDEM_API_KEY", secret->c_str(), 1) : unsetenv("TANDEM_API_KEY");
    const Outcome outcome = Ask(cluster_->client(), TextRequest("It is", v1::ROUTE_AUTO, 2));
    setenv("TANDEM_API_KEY", kAdmin, 1);
    return outcome.status;
  }
  static HttpReply PostWith(const std::string& header) {
    const Json body = {{"prompt", "It is"}, {"max_tokens", 2}};
    return HttpPeer(port_).Post("/v1/completions", body.dump(), header);
  }

  static inline std::string path_;
};

TEST_F(AccessTest, GrpcCallsNeedAKeyThatIsKnown) {
  EXPECT_TRUE(AskWith(kUser).ok());
  EXPECT_TRUE(absl::IsUnauthenticated(AskWith(std::nullopt)));
  EXPECT_TRUE(absl::IsUnauthenticated(AskWith("another")));
  setenv("TANDEM_API_KEY", kUser, 1);
  const absl::Status explained =
      cluster_->client().Explain(v1::ExplainRequest(), std::chrono::seconds(5)).status();
  EXPECT_TRUE(absl::IsPermissionDenied(explained)) << explained;
  EXPECT_TRUE(cluster_->client().GetStatus(std::chrono::seconds(5)).ok());
  unsetenv("TANDEM_API_KEY");
  const absl::Status status = cluster_->client().GetStatus(std::chrono::seconds(5)).status();
  EXPECT_TRUE(absl::IsUnauthenticated(status)) << status;
  setenv("TANDEM_API_KEY", kAdmin, 1);
}

TEST_F(AccessTest, HttpRequestsNeedAKeyThatIsKnown) {
  EXPECT_EQ(PostWith("authorization: Bearer secret-of-user\r\n").status, 200);
  EXPECT_EQ(PostWith("x-api-key: secret-of-user\r\n").status, 200);
  EXPECT_EQ(PostWith("").status, 401);
  EXPECT_EQ(PostWith("authorization: Bearer another\r\n").status, 401);
  EXPECT_EQ(HttpPeer(port_).Get("/health").status, 200) << "load balancers have no key";
  EXPECT_EQ(HttpPeer(port_).Get("/").status, 200);
  EXPECT_EQ(HttpPeer(port_).Get("/metrics").status, 401);
  EXPECT_EQ(HttpPeer(port_).Get("/v1/models").status, 401);
}

TEST_F(AccessTest, TheStatusOfAllTenantsNeedsTheScopeAdmin) {
  const auto status_with = [](const std::string& header) {
    HttpPeer peer(port_);
    peer.Send("GET /status.json HTTP/1.1\r\nhost: h\r\n" + header + "\r\n");
    return peer.Read();
  };
  EXPECT_EQ(HttpPeer(port_).Get("/status").status, 200)
      << "the page itself says nothing of anybody";
  EXPECT_EQ(HttpPeer(port_).Get("/status.js").status, 200);
  EXPECT_EQ(status_with("").status, 401);
  EXPECT_EQ(status_with("authorization: Bearer another\r\n").status, 401);
  EXPECT_EQ(status_with("authorization: Bearer secret-of-user\r\n").status, 403);
  EXPECT_TRUE(AskWith(kUser).ok());
  const HttpReply reply = status_with("authorization: Bearer secret-of-admin\r\n");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = ParseJson(reply.body);
  EXPECT_EQ(json["ready"], true);
  EXPECT_EQ(json["workers"].size(), 1u);
  EXPECT_EQ(json["access"]["keys"], 3);
  EXPECT_GE(json["http"]["open"], 1);
  EXPECT_GE(json["requests"].size(), 1u);
}

TEST_F(AccessTest, TheTenantIsThatOfTheKeyWhateverTheRequestSays) {
  v1::GenerateRequest request = TextRequest("It is", v1::ROUTE_AUTO, 2);
  request.set_tenant("somebody-else");
  setenv("TANDEM_API_KEY", kLimited, 1);
  const absl::Status first = Ask(cluster_->client(), request).status;
  const absl::Status second = Ask(cluster_->client(), request).status;
  setenv("TANDEM_API_KEY", kAdmin, 1);
  EXPECT_TRUE(first.ok()) << first;
  EXPECT_TRUE(absl::IsResourceExhausted(second)) << second;
  EXPECT_THAT(std::string(second.message()), testing::HasSubstr("tenant limited may send 1"));
  const HttpReply reply = PostWith("authorization: Bearer secret-of-limited\r\n");
  EXPECT_EQ(reply.status, 429);
  EXPECT_THAT(reply.head, testing::HasSubstr("retry-after"));
  const auto status = cluster_->client().GetStatus(std::chrono::seconds(5));
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(status->admission().refused_tenant_requests(), 2);
  // Of the four, the last stands for all that the file does not name.
  const auto& tenants = status->admission().tenants();
  ASSERT_EQ(tenants.size(), 4);
  EXPECT_EQ(tenants[1].tenant(), "limited");
  EXPECT_EQ(tenants[1].admitted(), 1u);
  EXPECT_EQ(tenants[1].refused(), 2u);
  EXPECT_GE(tenants[1].tokens(), 3u) << "two of the output and some of the prompt";
  EXPECT_EQ(tenants[3].tenant(), "");
  EXPECT_EQ(tenants[3].admitted(), 0u);
  const HttpReply page = HttpPeer(port_).Get("/metrics", "x-api-key: secret-of-admin\r\n");
  EXPECT_THAT(page.body, testing::HasSubstr("tandem_tenant_refused_total{tenant=\"limited\"} 2\n"));
  EXPECT_THAT(page.body, testing::HasSubstr("tandem_tenant_admitted_total{tenant=\"\"} 0\n"));
}

TEST_F(AccessTest, WhatTenantsUseIsForAdmins) {
  setenv("TANDEM_API_KEY", kUser, 1);
  const auto status = cluster_->client().GetStatus(std::chrono::seconds(5));
  setenv("TANDEM_API_KEY", kAdmin, 1);
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_TRUE(status->admission().tenants().empty());
  EXPECT_GT(status->workers_size(), 0);
}

TEST_F(AccessTest, AKeyThatIsTakenOutOfTheFileIsLetInNoLonger) {
  const Json before = ParseJson(ReadFile(path_));
  Json after = before;
  after["keys"].erase(0);
  Write(after);
  cluster_->WaitFor("the change of the file", [](const v1::GetStatusResponse& status) {
    return status.access().reloads() == 1;
  });
  EXPECT_TRUE(absl::IsUnauthenticated(AskWith(kUser)));
  EXPECT_TRUE(AskWith(kAdmin).ok());
}

}  // namespace
}  // namespace tandem::access_test
