#include "security/peer_check.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::peer_check_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class PeerCheckTest : public testing::Test {
 protected:
  // The status and, as it is counted, the reason; "" when nothing was counted.
  struct Verdict {
    absl::Status status;
    std::string reason;
    std::string text() const { return std::string(status.message()); }
  };
  static Verdict Judge(const PeerCertificate& peer, const NeededIdentity& needed) {
    TlsRefusals refusals;
    Verdict verdict;
    verdict.status = PeerCheck(TlsPort::kKv, &refusals).Check(peer, needed, "the call");
    for (const TlsRefusals::Count& count : refusals.counts()) {
      EXPECT_EQ(count.port, TlsPort::kKv);
      EXPECT_EQ(count.refused, 1u);
      verdict.reason += Name(count.reason);
    }
    return verdict;
  }
  static PeerCertificate With(std::vector<std::string> uris) {
    return {.shown = true, .subject = "CN=somebody", .uris = std::move(uris)};
  }

  const NeededIdentity any_worker_{.roles = {IdentityRole::kWorker}};
  const NeededIdentity decode_0_{.roles = {IdentityRole::kWorker}, .name = "decode-0"};
  const NeededIdentity client_{.roles = {IdentityRole::kClient, IdentityRole::kAdmin}};
};

TEST_F(PeerCheckTest, TheNeededIdentityIsLetIn) {
  const std::pair<const char*, const NeededIdentity*> cases[] = {
      {"spiffe://tandem/worker/decode-0", &any_worker_},
      {"spiffe://tandem/worker/*", &any_worker_},
      {"spiffe://tandem/worker/decode-0", &decode_0_},
      {"spiffe://tandem/worker/*", &decode_0_},
      {"spiffe://tandem/client/a", &client_},
      {"spiffe://tandem/admin/a", &client_}};
  for (const auto& [uri, needed] : cases) {
    const Verdict verdict = Judge(With({uri}), *needed);
    EXPECT_EQ(verdict.status, absl::OkStatus()) << uri;
    EXPECT_EQ(verdict.reason, "");
  }
}

TEST_F(PeerCheckTest, OneOfSeveralIdentitiesIsEnough) {
  const PeerCertificate both =
      With({"https://example/", "spiffe://tandem/router/up", "spiffe://tandem/worker/*"});
  EXPECT_EQ(Judge(both, decode_0_).status, absl::OkStatus());
  EXPECT_EQ(Judge(both, {.roles = {IdentityRole::kRouter}}).status, absl::OkStatus());
  EXPECT_FALSE(Judge(both, client_).status.ok());
}

TEST_F(PeerCheckTest, NoCertificate) {
  const Verdict verdict = Judge({}, any_worker_);
  EXPECT_EQ(verdict.status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(verdict.reason, "no_certificate");
  EXPECT_THAT(verdict.text(), AllOf(HasSubstr("the call"), HasSubstr("spiffe://tandem/worker/*")));
}

TEST_F(PeerCheckTest, ACertificateWithoutAnIdentity) {
  const Verdict verdict = Judge(With({"https://tandem/worker/decode-0"}), any_worker_);
  EXPECT_EQ(verdict.status.code(), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(verdict.reason, "no_identity");
  EXPECT_THAT(verdict.text(), HasSubstr("CN=somebody"));
}

TEST_F(PeerCheckTest, AnotherRole) {
  const Verdict verdict = Judge(With({"spiffe://tandem/client/decode-0"}), decode_0_);
  EXPECT_EQ(verdict.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(verdict.reason, "wrong_role");
  EXPECT_THAT(verdict.text(), AllOf(HasSubstr("spiffe://tandem/client/decode-0 was presented"),
                                    HasSubstr("spiffe://tandem/worker/decode-0 is needed")));
}

TEST_F(PeerCheckTest, AnotherName) {
  const Verdict verdict = Judge(With({"spiffe://tandem/worker/decode-1"}), decode_0_);
  EXPECT_EQ(verdict.status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(verdict.reason, "wrong_name");
}

// The name of one role does not stand for that of another.
TEST_F(PeerCheckTest, AnyNameOfAnotherRoleIsNoNameOfThisOne) {
  const Verdict verdict =
      Judge(With({"spiffe://tandem/router/*", "spiffe://tandem/worker/decode-1"}), decode_0_);
  EXPECT_EQ(verdict.reason, "wrong_name");
}

}  // namespace
}  // namespace tandem::peer_check_test
