#include "server/check/check_tls.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "security/certificate_authority.h"

namespace tandem::check_tls_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr std::chrono::hours kDay{24};

class CheckTlsTest : public testing::Test {
 protected:
  CheckTlsTest() : authority_(NewAuthority()) {}

  static CertificateAuthority NewAuthority() {
    auto made = CertificateAuthority::Create("test", kDay * 90);
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  static std::string Write(const std::string& name, const std::string& text) {
    const std::string path = testing::TempDir() + "check_tls_" + std::to_string(getpid()) + name;
    std::ofstream(path) << text;
    return path;
  }

  TlsFiles Issue(std::chrono::hours valid_for, const CertificateAuthority& trusted,
                 const std::string& worker = kAnyName) const {
    const auto issued = authority_.Issue({.common_name = "x",
                                          .identities = {{IdentityRole::kWorker, worker}},
                                          .valid_until = valid_for});
    EXPECT_TRUE(issued.ok()) << issued.status();
    return {.cert = Write(".pem", issued->cert_pem),
            .key = Write(".key", issued->key_pem),
            .ca = Write(".ca", trusted.cert_pem())};
  }

  static std::vector<Finding> Check(const TlsFiles& files, std::chrono::hours from_now = {}) {
    Findings findings;
    const NeededIdentity worker = {{IdentityRole::kWorker}, "decode-0"};
    CheckTls(files, {.flags = "--tls", .part = "decode-0", .identity = worker},
             std::chrono::system_clock::now() + from_now, findings);
    return findings.all();
  }

  const CertificateAuthority authority_;
};

TEST_F(CheckTlsTest, FilesThatFitAreInOrder) {
  EXPECT_THAT(Check(Issue(kDay * 60, authority_)), IsEmpty());
  EXPECT_THAT(Check({}), IsEmpty());
}

TEST_F(CheckTlsTest, ACertificateThatExpiresSoonIsAWarning) {
  const auto found = Check(Issue(kDay * 13, authority_));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].severity, Severity::kWarning);
  EXPECT_THAT(found[0].text, HasSubstr("in 12 days: issue a new certificate"));
}

TEST_F(CheckTlsTest, ACertificateThatIsNotValidNowIsAnError) {
  const TlsFiles files = Issue(kDay * 60, authority_);
  const auto expired = Check(files, kDay * 61);
  ASSERT_THAT(expired, SizeIs(1));
  EXPECT_EQ(expired[0].severity, Severity::kError);
  EXPECT_THAT(expired[0].text, HasSubstr(files.cert + " expired at "));
  const auto early = Check(files, -kDay);
  ASSERT_THAT(early, SizeIs(1));
  EXPECT_THAT(early[0].text, HasSubstr("is valid from"));
}

TEST_F(CheckTlsTest, AnotherAuthorityIsAnError) {
  const auto found = Check(Issue(kDay * 60, NewAuthority()));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].severity, Severity::kError);
  EXPECT_THAT(found[0].text, HasSubstr(" against "));
}

TEST_F(CheckTlsTest, TheIdentityOfAnotherWorkerIsAnError) {
  EXPECT_THAT(Check(Issue(kDay * 60, authority_, "decode-0")), IsEmpty());
  const auto found = Check(Issue(kDay * 60, authority_, "decode-1"));
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(found[0].severity, Severity::kError);
  EXPECT_THAT(found[0].text, HasSubstr("one for spiffe://tandem/worker/decode-0 is needed"));
}

TEST_F(CheckTlsTest, AKeyOfAnotherCertificateOrAMissingFileIsAnError) {
  TlsFiles files = Issue(kDay * 60, authority_);
  files.key = Write(".other", NewAuthority().key_pem());
  EXPECT_THAT(Check(files), SizeIs(1));
  files.cert = "/nowhere.pem";
  const auto missing = Check(files);
  ASSERT_THAT(missing, SizeIs(1));
  EXPECT_THAT(missing[0].text, HasSubstr("/nowhere.pem"));
}

}  // namespace
}  // namespace tandem::check_tls_test
