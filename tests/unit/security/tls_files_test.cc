#include "security/tls_files.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::tls_files_test {
namespace {

TEST(TlsFilesTest, APortNeedsAllThreeOrNone) {
  EXPECT_EQ(TlsFiles().Check(), absl::OkStatus());
  EXPECT_EQ((TlsFiles{"c", "k", "a"}.Check()), absl::OkStatus());
  for (const TlsFiles& files : {TlsFiles{"c", "", ""}, TlsFiles{"", "k", ""}, TlsFiles{"", "", "a"},
                                TlsFiles{"c", "k", ""}, TlsFiles{"c", "", "a"}}) {
    const absl::Status status = files.Check("--kv-tls");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                testing::HasSubstr("--kv-tls-cert, --kv-tls-key and --kv-tls-ca"));
  }
}

TEST(TlsFilesTest, AClientNeedsAuthoritiesAloneOrAllThree) {
  EXPECT_EQ(TlsFiles().CheckClient(), absl::OkStatus());
  EXPECT_EQ((TlsFiles{"", "", "a"}.CheckClient()), absl::OkStatus());
  EXPECT_EQ((TlsFiles{"c", "k", "a"}.CheckClient()), absl::OkStatus());
  EXPECT_FALSE((TlsFiles{"c", "k", ""}.CheckClient().ok()));
  EXPECT_FALSE((TlsFiles{"c", "", "a"}.CheckClient().ok()));
  EXPECT_FALSE((TlsFiles{"", "k", "a"}.CheckClient().ok()));
}

}  // namespace
}  // namespace tandem::tls_files_test
