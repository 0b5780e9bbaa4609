// Which addresses the values of --router stand for, while DNS answers, fails and answers again.
#include "server/assembly/router_directory.h"

#include <string>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/assembly/host_resolver.h"

namespace tandem::router_directory_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Addresses = std::vector<std::string>;

// Answers as the test says, for every host.
class FixedResolver final : public HostResolver {
 public:
  absl::StatusOr<Addresses> Resolve(const std::string& host) override {
    asked.push_back(host);
    return answer;
  }
  absl::StatusOr<Addresses> answer = Unavailable("no DNS yet");
  std::vector<std::string> asked;
};

RouterName Parsed(const std::string& text) { return ParseRouterName(text).value(); }

TEST(RouterNameTest, ADnsNameIsToldFromARouter) {
  EXPECT_FALSE(Parsed("10.0.0.1:8080").follows_dns);
  EXPECT_FALSE(Parsed("dns-1:8080").follows_dns);
  const RouterName name = Parsed("dns:routers.ns.svc.cluster.local.:8080");
  EXPECT_TRUE(name.follows_dns);
  EXPECT_EQ(name.host, "routers.ns.svc.cluster.local.");
  EXPECT_EQ(name.port, 8080);
}

TEST(RouterNameTest, WhatIsNoNameIsRefusedWithItsText) {
  for (const std::string text :
       {"dns:", "dns::8080", "dns:routers", "dns:routers:http", "dns:routers:65536", "routers",
        "dns:///routers:8080", "dns:two words:8080"}) {
    const auto name = ParseRouterName(text);
    ASSERT_EQ(name.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(name.status().message()), HasSubstr("\"" + text + "\""));
  }
}

TEST(RouterDirectoryTest, ARouterThatIsGivenByAddressNeedsNoLook) {
  FixedResolver resolver;
  RouterDirectory directory({Parsed("router-0:8080"), Parsed("[::1]:8080")}, resolver);
  EXPECT_FALSE(directory.follows_dns());
  directory.LookUp();
  EXPECT_THAT(resolver.asked, IsEmpty());
  EXPECT_THAT(directory.addresses(),
              ElementsAre(ElementsAre("router-0:8080"), ElementsAre("[::1]:8080")));
}

TEST(RouterDirectoryTest, EveryAddressOfANameIsARouter) {
  FixedResolver resolver;
  RouterDirectory directory({Parsed("one:1"), Parsed("dns:many:2")}, resolver);
  EXPECT_TRUE(directory.follows_dns());
  EXPECT_THAT(directory.addresses(), ElementsAre(ElementsAre("one:1"), IsEmpty()));
  resolver.answer = Addresses{"10.0.0.2", "10.0.0.1", "fd00::1", "10.0.0.2"};
  directory.LookUp();
  EXPECT_THAT(resolver.asked, ElementsAre("many"));
  EXPECT_THAT(
      directory.addresses(),
      ElementsAre(ElementsAre("one:1"), ElementsAre("10.0.0.1:2", "10.0.0.2:2", "[fd00::1]:2")));
}

TEST(RouterDirectoryTest, AnAnswerReplacesTheOneBefore) {
  FixedResolver resolver;
  RouterDirectory directory({Parsed("dns:many:2")}, resolver);
  resolver.answer = Addresses{"10.0.0.1", "10.0.0.2"};
  directory.LookUp();
  resolver.answer = Addresses{"10.0.0.3"};
  directory.LookUp();
  EXPECT_THAT(directory.addresses(), ElementsAre(ElementsAre("10.0.0.3:2")));
}

TEST(RouterDirectoryTest, NoAnswerLeavesWhatIsKnown) {
  FixedResolver resolver;
  RouterDirectory directory({Parsed("dns:many:2")}, resolver);
  resolver.answer = Addresses{"10.0.0.1"};
  directory.LookUp();
  for (int look = 0; look < 10; ++look) {
    resolver.answer = Unavailable("no DNS");
    directory.LookUp();
    resolver.answer = Addresses{};
    directory.LookUp();
  }
  EXPECT_THAT(directory.addresses(), ElementsAre(ElementsAre("10.0.0.1:2")));
}

TEST(RouterDirectoryTest, AddressesAreBounded) {
  FixedResolver resolver;
  RouterDirectory directory({Parsed("dns:many:2")}, resolver);
  Addresses many;
  for (size_t i = 0; i < 10 * kMaxRouters; ++i) many.push_back("10.0.0." + std::to_string(i));
  resolver.answer = many;
  directory.LookUp();
  EXPECT_THAT(directory.addresses(), ElementsAre(SizeIs(kMaxRouters)));
}

TEST(SystemResolverTest, FindsThisMachineAndSaysWhichNameHasNoAddress) {
  SystemResolver resolver;
  const auto here = resolver.Resolve("127.0.0.1");
  ASSERT_TRUE(here.ok()) << here.status();
  EXPECT_THAT(*here, Contains("127.0.0.1"));
  const auto v6 = resolver.Resolve("::1");
  ASSERT_TRUE(v6.ok()) << v6.status();
  EXPECT_THAT(*v6, Contains("::1"));
  const auto nowhere = resolver.Resolve("no-such-host.invalid");
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(nowhere.status().message()), HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace tandem::router_directory_test
