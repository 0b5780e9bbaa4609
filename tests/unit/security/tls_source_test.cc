#include "security/tls_source.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "security/certificate_folder.h"
#include "tests/support/test_certificates.h"

namespace tandem::tls_source_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void ReplaceText(const std::string& path, const std::string& content) {
  std::ofstream file(path);
  file << content;
}

class TlsSourceTest : public testing::Test {
 protected:
  TlsSourceTest()
      : directory_(fmt::format("{}/tls_source-{}", testing::TempDir(),
                               testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~TlsSourceTest() override { std::filesystem::remove_all(directory_); }

  static std::string Read(const std::string& path) { return *ReadPemFile(path); }

  const std::string directory_;
  const TestAuthority ours_{(std::filesystem::create_directories(directory_), directory_), "ours"};
  const TlsFiles files_ = ours_.Issue("a");
  const TlsFiles others_ = ours_.Issue("b");
};

TEST_F(TlsSourceTest, ReadsWhatHasChanged) {
  const auto source = TlsSource::Open(files_, Duration::zero());
  ASSERT_TRUE(source.ok()) << source.status();
  const auto first = (*source)->Current();
  EXPECT_EQ(first->cert_pem, Read(files_.cert));
  EXPECT_EQ((*source)->Current(), first) << "nothing has changed";
  std::filesystem::rename(others_.cert, files_.cert);
  std::filesystem::rename(others_.key, files_.key);
  const auto second = (*source)->Current();
  EXPECT_EQ(second->cert_pem, Read(files_.cert));
  EXPECT_NE(second->cert_pem, first->cert_pem);
  EXPECT_EQ(second->key_pem, Read(files_.key));
}

// A certificate and its key are two files, of which one comes first.
TEST_F(TlsSourceTest, ACertificateWithoutItsKeyChangesNothing) {
  const auto source = TlsSource::Open(files_, Duration::zero());
  const auto first = (*source)->Current();
  std::filesystem::rename(others_.cert, files_.cert);
  EXPECT_EQ((*source)->Current(), first);
  std::filesystem::rename(others_.key, files_.key);
  EXPECT_NE((*source)->Current(), first);
}

TEST_F(TlsSourceTest, FilesThatCannotBeUsedChangeNothingUntilTheyAreMended) {
  const auto source = TlsSource::Open(files_, Duration::zero());
  const auto first = (*source)->Current();
  const std::string whole = Read(files_.cert);
  for (const std::string& content :
       {std::string(), whole.substr(0, whole.size() / 2), std::string("nonsense"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + whole}) {
    ReplaceText(files_.cert, content);
    EXPECT_EQ((*source)->Current(), first) << content;
  }
  std::filesystem::remove(files_.ca);
  EXPECT_EQ((*source)->Current(), first);
  ReplaceText(files_.cert, whole);
  ReplaceText(files_.ca, first->ca_pem);
  const auto mended = (*source)->Current();
  EXPECT_NE(mended, first);
  EXPECT_EQ(mended->cert_pem, whole);
}

TEST_F(TlsSourceTest, AFileIsNotLookedAtBeforeItsTime) {
  const auto source = TlsSource::Open(files_, std::chrono::hours(1));
  const auto first = (*source)->Current();
  std::filesystem::rename(others_.cert, files_.cert);
  std::filesystem::rename(others_.key, files_.key);
  EXPECT_EQ((*source)->Current(), first);
}

TEST_F(TlsSourceTest, FilesThatCannotBeUsedAtTheStartAreNamed) {
  const auto message = [](const TlsFiles& files) {
    const auto source = TlsSource::Open(files);
    EXPECT_EQ(source.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(source.status().message());
  };
  EXPECT_THAT(message({.cert = "/none.pem", .key = files_.key, .ca = files_.ca}),
              AllOf(HasSubstr("/none.pem"), HasSubstr("No such file")));
  EXPECT_THAT(message({.cert = files_.cert, .key = others_.key, .ca = files_.ca}),
              AllOf(HasSubstr(others_.key), HasSubstr("mismatch")));
  EXPECT_THAT(message({.cert = files_.cert, .key = files_.key, .ca = files_.key}),
              HasSubstr("authorities"));
  EXPECT_THAT(message({.cert = directory_, .key = files_.key, .ca = files_.ca}),
              HasSubstr("not a regular file"));
  const std::string large = directory_ + "/large.pem";
  ReplaceText(large, std::string((4 << 20) + 1, 'x'));
  EXPECT_THAT(message({.cert = files_.cert, .key = files_.key, .ca = large}), HasSubstr("bytes"));
}

}  // namespace
}  // namespace tandem::tls_source_test
