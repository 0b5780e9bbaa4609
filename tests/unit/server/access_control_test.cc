#include "server/access/access_control.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/access/http_access.h"

namespace tandem::access_control_test {
namespace {

using testing::HasSubstr;

ApiKey KeyOf(const std::string& id, const std::string& secret, std::vector<Scope> scopes) {
  return {.id = id, .sha256 = HashOfSecret(secret), .tenant = "tenant-" + id, .scopes = scopes};
}

std::string FileWith(const std::vector<ApiKey>& keys) {
  AccessFile file;
  for (const ApiKey& key : keys) EXPECT_TRUE(file.Add(key).ok());
  return file.ToJson();
}

class AccessControlTest : public testing::Test {
 protected:
  AccessControlTest() : path_(testing::TempDir() + "access_control_test.json") {}
  ~AccessControlTest() override { std::filesystem::remove(path_); }

  // As a change of a careful writer: the new file takes the place of the old one.
  void Write(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }
  std::unique_ptr<AccessControl> Open() {
    auto access =
        AccessControl::Open(path_, [this](const TenantPolicy& policy) { policy_ = policy; });
    EXPECT_TRUE(access.ok()) << access.status();
    return *std::move(access);
  }
  void ExpectRefused(AccessControl& access, std::optional<std::string_view> secret, Scope scope,
                     absl::StatusCode code) {
    const auto caller = access.Check(secret, scope);
    EXPECT_EQ(caller.status().code(), code) << caller.status();
    if (secret && !secret->empty()) {
      EXPECT_THAT(std::string(caller.status().message()),
                  testing::Not(HasSubstr(std::string(*secret))));
    }
  }

  const std::string path_;
  TenantPolicy policy_;
};

TEST_F(AccessControlTest, AKeyLetsItsHolderDoWhatItsScopesSay) {
  Write(FileWith({KeyOf("user", "s1", {Scope::kGenerate}),
                  KeyOf("root", "s2", {Scope::kGenerate, Scope::kAdmin})}));
  const auto access = Open();
  const auto user = access->Check("s1", Scope::kGenerate);
  ASSERT_TRUE(user.ok() && *user) << user.status();
  EXPECT_EQ((*user)->tenant, "tenant-user");
  EXPECT_FALSE((*user)->is_admin);
  EXPECT_EQ((*access->Check("s2", Scope::kAdmin))->key_id, "root");
  EXPECT_TRUE((*access->Check("s2", Scope::kAdmin))->is_admin);
  ExpectRefused(*access, "s1", Scope::kAdmin, absl::StatusCode::kPermissionDenied);
  ExpectRefused(*access, "s3", Scope::kGenerate, absl::StatusCode::kUnauthenticated);
  ExpectRefused(*access, "", Scope::kGenerate, absl::StatusCode::kUnauthenticated);
  ExpectRefused(*access, std::nullopt, Scope::kGenerate, absl::StatusCode::kUnauthenticated);
  // The hash is in a file that others may read, and opens nothing.
  ExpectRefused(*access, HashOfSecret("s1"), Scope::kGenerate, absl::StatusCode::kUnauthenticated);
  const v1::AccessUse use = access->Use();
  EXPECT_EQ(use.keys(), 2);
  EXPECT_EQ(use.refused_scope(), 1);
  EXPECT_EQ(use.refused_unknown(), 3);
  EXPECT_EQ(use.refused_missing(), 1);
}

TEST_F(AccessControlTest, AFileWithoutKeysLetsEverybodyIn) {
  Write(R"({"usual_tenant": {"max_in_flight": 3}})");
  const auto access = Open();
  const auto caller = access->Check(std::nullopt, Scope::kAdmin);
  ASSERT_TRUE(caller.ok());
  EXPECT_FALSE(caller->has_value());
  EXPECT_EQ(policy_.usual.max_in_flight, 3);
}

TEST_F(AccessControlTest, WhereTheLastKeyIsTakenAwayNobodyIsLetIn) {
  Write(FileWith({KeyOf("a", "s1", {Scope::kGenerate})}));
  const auto access = Open();
  Write("{}");
  access->ReloadIfChanged();
  EXPECT_EQ(access->Use().reloads(), 1);
  ExpectRefused(*access, "s1", Scope::kGenerate, absl::StatusCode::kUnauthenticated);
  ExpectRefused(*access, std::nullopt, Scope::kGenerate, absl::StatusCode::kUnauthenticated);
}

TEST_F(AccessControlTest, ChangesAreTakenWithoutARestart) {
  Write(FileWith({KeyOf("a", "s1", {Scope::kGenerate})}));
  const auto access = Open();
  access->ReloadIfChanged();
  EXPECT_EQ(access->Use().reloads(), 0) << "nothing has changed";
  Write(FileWith({KeyOf("b", "s2", {Scope::kGenerate})}));
  access->ReloadIfChanged();
  EXPECT_EQ(access->Use().reloads(), 1);
  EXPECT_TRUE(access->Check("s2", Scope::kGenerate).ok());
  ExpectRefused(*access, "s1", Scope::kGenerate, absl::StatusCode::kUnauthenticated);
}

TEST_F(AccessControlTest, AChangeThatCannotBeReadKeepsTheEarlierKeys) {
  Write(FileWith({KeyOf("a", "s1", {Scope::kGenerate})}));
  const auto access = Open();
  Write("{\"keys\": [");
  access->ReloadIfChanged();
  std::filesystem::remove(path_);
  access->ReloadIfChanged();
  EXPECT_EQ(access->Use().reloads_refused(), 2);
  EXPECT_TRUE(access->Check("s1", Scope::kGenerate).ok());
  ExpectRefused(*access, "s2", Scope::kGenerate, absl::StatusCode::kUnauthenticated);
}

TEST_F(AccessControlTest, LimitsOfTenantsAreRead) {
  Write(
      R"({"tenants": {"a": {"requests_per_minute": 60, "tokens_per_minute": 1e6, "weight": 2.5}}})");
  Open();
  EXPECT_EQ(policy_.Of("a").requests_per_minute, 60);
  EXPECT_EQ(policy_.Of("a").tokens_per_minute, 1e6);
  EXPECT_EQ(policy_.Of("a").weight, 2.5);
  EXPECT_FALSE(policy_.Of("a").max_in_flight.has_value());
  EXPECT_FALSE(policy_.Of("b").requests_per_minute.has_value());
}

TEST_F(AccessControlTest, TenantsOfKeysAndThoseWithLimitsAreNamed) {
  const std::string key = FileWith({KeyOf("a", "s1", {Scope::kGenerate})});
  Write(key);
  Open();
  EXPECT_THAT(policy_.named, testing::ElementsAre("tenant-a"));
  Write(R"({"tenants": {"limited": {"weight": 2}}})");
  Open();
  EXPECT_THAT(policy_.named, testing::ElementsAre("limited"));
}

TEST_F(AccessControlTest, AFileThatDoesNotExistIsAnError) {
  const auto access = AccessControl::Open(path_ + ".none", [](const TenantPolicy&) {});
  EXPECT_TRUE(absl::IsNotFound(access.status())) << access.status();
  EXPECT_THAT(std::string(access.status().message()), HasSubstr(".none"));
}

struct BadFile {
  const char* text;
  const char* says;
};

class BadAccessFileTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadAccessFileTest, IsRefusedWithTheElementAtFault) {
  const auto file = AccessFile::Parse(GetParam().text);
  EXPECT_FALSE(file.ok());
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadAccessFileTest,
    testing::Values(
        BadFile{"", "no JSON"}, BadFile{"[]", "must be an object"},
        BadFile{R"({"key": []})", "no field is called key"},
        BadFile{R"({"keys": {}})", "keys: must be a list"},
        BadFile{R"({"keys": [{"id": "a"}]})", "keys[0].sha256"},
        BadFile{R"({"keys": [{"id": "a b", "sha256": "", "tenant": "t"}]})", "keys[0]"},
        BadFile{R"({"keys": [{"id": "a", "sha256": "abc", "tenant": "t"}]})",
                "64 hexadecimal digits"},
        BadFile{R"({"keys": [{"id": "a", "sha256": "abc", "tenant": "t", "scopes": ["root"]}]})",
                "\"root\" is none of generate, admin"},
        BadFile{R"({"keys": [{"id": "a", "sha256": "abc", "tenant": "t", "scopes": []}]})",
                "scopes: must be a list"},
        BadFile{R"({"tenants": {"a": {"weight": 0}}})", "tenants.a.weight: 0 is no number above 0"},
        BadFile{R"({"tenants": {"a": {"max_in_flight": 1.5}}})", "must be a whole number"},
        BadFile{R"({"usual_tenant": {"rpm": 3}})", "no field is called rpm"}));

TEST(AccessFileTest, KeepsWhatItWrote) {
  const auto file = AccessFile::Parse(
      R"({"keys": [{"id": "a", "sha256": ")" + HashOfSecret("x") +
      R"(", "tenant": "t", "scopes": ["admin"]}], "tenants": {"t": {"max_in_flight": 2}}})");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto again = AccessFile::Parse(file->ToJson());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->ToJson(), file->ToJson());
  ASSERT_NE(again->Find("x"), nullptr);
  EXPECT_EQ(again->Find("x")->scopes, std::vector<Scope>{Scope::kAdmin});
  EXPECT_EQ(again->tenants().Of("t").max_in_flight, 2);
}

TEST(AccessFileTest, AMillionLevelsAreRefused) {
  constexpr size_t kDeep = 1'000'000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  for (const std::string& text :
       {deep, R"({"usual_tenant": {"max_in_flight": )" + deep + "}}",
        R"({"keys": [{"id": "a", "sha256": "x", "tenant": "t", "scopes": [)" + deep + "]}]}"}) {
    EXPECT_EQ(AccessFile::Parse(text).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(AccessFileTest, TwoKeysWithOneIdOrOneSecretAreRefused) {
  AccessFile file;
  ASSERT_TRUE(file.Add(KeyOf("a", "x", {Scope::kGenerate})).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(file.Add(KeyOf("a", "y", {Scope::kGenerate}))));
  EXPECT_TRUE(absl::IsAlreadyExists(file.Add(KeyOf("b", "x", {Scope::kGenerate}))));
  EXPECT_TRUE(absl::IsNotFound(file.Remove("b")));
  EXPECT_TRUE(file.Remove("a").ok());
  EXPECT_EQ(file.Find("x"), nullptr);
}

TEST(AccessFileTest, SecretsDifferAndHashesAreSha256) {
  const auto one = NewSecret();
  const auto other = NewSecret();
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_NE(*one, *other);
  EXPECT_EQ(one->size(), 4u + 43u);
  EXPECT_EQ(HashOfSecret("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(BearerSecretTest, IsReadInAnyCase) {
  EXPECT_EQ(BearerSecret("Bearer k"), "k");
  EXPECT_EQ(BearerSecret("bearer  k"), "k");
  EXPECT_EQ(BearerSecret("Basic k"), std::nullopt);
  EXPECT_EQ(BearerSecret("Bearer "), std::nullopt);
  EXPECT_EQ(BearerSecret(""), std::nullopt);
}

TEST_F(AccessControlTest, HttpRequestsNeedAKeyButForOpenPaths) {
  Write(FileWith({KeyOf("user", "s1", {Scope::kGenerate})}));
  const auto access = Open();
  const auto authorize = HttpAuthorizer(*access, {"/health"});
  const auto status_of = [&](const std::string& method, const std::string& path,
                             std::vector<HttpHeader> headers) {
    HttpRequest request{.method = method, .path = path, .headers = std::move(headers)};
    const std::optional<HttpResponse> refusal = authorize(request);
    if (!refusal && !request.tenant.empty()) {
      EXPECT_EQ(request.tenant, "tenant-user");
    }
    return refusal ? refusal->status : 200;
  };
  const HttpHeader bearer{"Authorization", "Bearer s1"};
  EXPECT_EQ(status_of("GET", "/health", {}), 200);
  EXPECT_EQ(status_of("POST", "/health", {}), 401) << "only reading is open";
  EXPECT_EQ(status_of("POST", "/v1/completions", {}), 401);
  EXPECT_EQ(status_of("POST", "/v1/completions", {{"Authorization", "Bearer s2"}}), 401);
  EXPECT_EQ(status_of("POST", "/v1/completions", {bearer}), 200);
  EXPECT_EQ(status_of("POST", "/v1/messages", {{"X-Api-Key", "s1"}}), 200);
  EXPECT_EQ(status_of("GET", "/metrics", {bearer}), 403);
  EXPECT_EQ(status_of("GET", "/explain/x", {bearer}), 403);
  EXPECT_EQ(status_of("GET", "/status.json", {bearer}), 403);
  EXPECT_EQ(status_of("GET", "/a-path-that-comes-later", {}), 401);
}

}  // namespace
}  // namespace tandem::access_control_test
