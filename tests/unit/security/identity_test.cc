#include "security/identity.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem::identity_test {
namespace {

TEST(IdentityTest, AnIdentityIsReadBackFromItsUri) {
  for (const std::string uri : {"spiffe://tandem/router/r-0", "spiffe://tandem/worker/*",
                                "spiffe://tandem/client/a.b_c", "spiffe://tandem/admin/root"}) {
    const auto identity = ParseIdentity(uri);
    ASSERT_TRUE(identity.ok()) << identity.status();
    EXPECT_EQ(identity->Uri(), uri);
  }
  EXPECT_EQ(*ParseIdentity("spiffe://tandem/worker/decode-0"),
            (Identity{.role = IdentityRole::kWorker, .name = "decode-0"}));
}

TEST(IdentityTest, WhatIsNotExactlyAnIdentityIsNone) {
  for (const std::string uri :
       {"", "spiffe://tandem", "spiffe://tandem/", "spiffe://tandem/worker",
        "spiffe://tandem/worker/", "spiffe://tandem/engine/x", "spiffe://tandem/Worker/x",
        "spiffe://other/worker/x", "https://tandem/worker/x", "spiffe://tandem/worker/x/y",
        "spiffe://tandem/worker/x*", "spiffe://tandem/worker/a b", "spiffe://tandem/worker/x\n",
        "SPIFFE://tandem/worker/x", "spiffe://tandem/worker/%2a", " spiffe://tandem/worker/x"}) {
    EXPECT_EQ(ParseIdentity(uri).status().code(), absl::StatusCode::kInvalidArgument) << uri;
  }
  EXPECT_TRUE(MakeIdentity("worker", std::string(128, 'x')).ok());
  EXPECT_FALSE(MakeIdentity("worker", std::string(129, 'x')).ok());
  EXPECT_FALSE(MakeIdentity("worker", std::string("a\0b", 3)).ok());
}

}  // namespace
}  // namespace tandem::identity_test
