#include "security/certificate.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "security/certificate_authority.h"
#include "security/certificate_folder.h"

namespace tandem::certificate_test {
namespace {

using std::chrono::hours;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CertificateAuthority NewAuthority() {
  auto made = CertificateAuthority::Create("authority", hours(24));
  EXPECT_TRUE(made.ok()) << made.status();
  return *std::move(made);
}

TEST(CertificateTest, WhatWasAskedForIsInIt) {
  const auto issued =
      NewAuthority().Issue({.common_name = "decode-0",
                            .identities = {{.role = IdentityRole::kWorker, .name = "decode-0"},
                                           {.role = IdentityRole::kRouter, .name = "*"}},
                            .hosts = {"llm.example", "10.0.0.1", "::1"},
                            .valid_until = hours(48)});
  ASSERT_TRUE(issued.ok()) << issued.status();
  const auto info = ReadCertificateInfo(issued->cert_pem);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->subject, "CN=decode-0");
  EXPECT_THAT(info->uris,
              ElementsAre("spiffe://tandem/worker/decode-0", "spiffe://tandem/router/*"));
  EXPECT_THAT(info->hosts, ElementsAre("llm.example", "10.0.0.1", "::1"));
  EXPECT_FALSE(info->is_authority);
  EXPECT_EQ(std::chrono::duration_cast<hours>(info->not_after - info->not_before).count(), 48);
}

TEST(CertificateTest, HostsThatAreNoneAreRefusedByName) {
  for (const std::string host : {"a,URI:spiffe://tandem/admin/x", "with space", "new\nline", ""}) {
    const auto issued = NewAuthority().Issue({.common_name = "x", .hosts = {host}});
    EXPECT_EQ(issued.status().code(), absl::StatusCode::kInvalidArgument) << host;
    EXPECT_THAT(std::string(issued.status().message()), HasSubstr(host));
  }
}

TEST(CertificateTest, OnlyItsAuthorityVouchesForIt) {
  const CertificateAuthority ours = NewAuthority();
  const CertificateAuthority foreign = NewAuthority();
  const auto issued = ours.Issue({.common_name = "x"});
  ASSERT_TRUE(issued.ok()) << issued.status();
  EXPECT_EQ(CheckTrusted(issued->cert_pem, ours.cert_pem()), absl::OkStatus());
  EXPECT_EQ(CheckTrusted(issued->cert_pem, foreign.cert_pem()).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CheckTrusted(issued->cert_pem, foreign.cert_pem() + ours.cert_pem()), absl::OkStatus());
  const auto expired =
      ours.Issue({.common_name = "x", .valid_from = -hours(2), .valid_until = -hours(1)});
  EXPECT_THAT(std::string(CheckTrusted(expired->cert_pem, ours.cert_pem()).message()),
              HasSubstr("expired"));
}

// What signs is an authority, and nothing that it signs may sign.
TEST(CertificateTest, ACertificateIsNoAuthority) {
  const CertificateAuthority ours = NewAuthority();
  EXPECT_TRUE(ReadCertificateInfo(ours.cert_pem())->is_authority);
  const auto issued = ours.Issue({.common_name = "x"});
  EXPECT_FALSE(CertificateAuthority::Load(issued->cert_pem, issued->key_pem).ok());
  EXPECT_FALSE(CertificateAuthority::Load(ours.cert_pem(), issued->key_pem).ok());
  EXPECT_TRUE(CertificateAuthority::Load(ours.cert_pem(), ours.key_pem()).ok());
}

class CertificateFolderTest : public testing::Test {
 protected:
  CertificateFolderTest()
      : path_(fmt::format("{}/folder-{}", testing::TempDir(),
                          testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(path_);
  }
  ~CertificateFolderTest() override { std::filesystem::remove_all(path_); }
  static IssuedCertificate Some(const CertificateAuthority& authority) {
    return *authority.Issue({.common_name = "x"});
  }

  const std::string path_;
};

TEST_F(CertificateFolderTest, KeysAreTheOwnersAlone) {
  const auto folder = CertificateFolder::Open(path_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  ASSERT_TRUE(folder->OpenAuthority(hours(24)).ok());
  EXPECT_THAT(folder->Stems(), ElementsAre("ca"));
  EXPECT_EQ(std::filesystem::status(folder->KeyPath("ca")).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST_F(CertificateFolderTest, TheAuthorityStaysTheSame) {
  const auto folder = CertificateFolder::Open(path_);
  const auto first = folder->OpenAuthority(hours(24));
  const auto second = folder->OpenAuthority(hours(24));
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->cert_pem(), second->cert_pem());
  std::filesystem::remove(folder->KeyPath("ca"));
  EXPECT_EQ(folder->OpenAuthority(hours(24)).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(CertificateFolderTest, NothingIsReplacedUnasked) {
  const auto folder = CertificateFolder::Open(path_);
  const auto authority = folder->OpenAuthority(hours(24));
  const IssuedCertificate first = Some(*authority);
  ASSERT_EQ(folder->Write("worker", first, Overwrite::kNo), absl::OkStatus());
  const absl::Status refused = folder->Write("worker", Some(*authority), Overwrite::kNo);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--force"));
  EXPECT_EQ(*ReadPemFile(folder->CertPath("worker")), first.cert_pem);
  const IssuedCertificate second = Some(*authority);
  ASSERT_EQ(folder->Write("worker", second, Overwrite::kYes), absl::OkStatus());
  EXPECT_EQ(*ReadPemFile(folder->CertPath("worker")), second.cert_pem);
}

}  // namespace
}  // namespace tandem::certificate_test
