#include "tests/support/test_certificates.h"

#include <chrono>
#include <cstdint>
#include <fstream>
#include <utility>

#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr std::chrono::hours kDay(24);

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  EXPECT_TRUE(file.good()) << path;
}

CertificateAuthority NewAuthority(std::string_view name) {
  auto authority = CertificateAuthority::Create(name, kDay);
  EXPECT_TRUE(authority.ok()) << authority.status();
  return *std::move(authority);
}

}  // namespace

TestAuthority::TestAuthority(std::string directory, std::string name)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      ca_file_(fmt::format("{}/{}.ca.pem", directory_, name_)),
      authority_(NewAuthority(name_)) {
  WriteText(ca_file_, authority_.cert_pem());
}

TlsFiles TestAuthority::Issue(std::string_view worker, Validity validity,
                              const std::string& addresses) const {
  CertificateRequest request;
  request.identities.push_back({.role = IdentityRole::kWorker, .name = std::string(worker)});
  for (const absl::string_view address : absl::StrSplit(addresses, ',', absl::SkipEmpty())) {
    request.hosts.emplace_back(address.substr(address.find(':') + 1));
  }
  return Write(worker, std::move(request), validity);
}

TlsFiles TestAuthority::IssueFor(std::string_view stem, const std::vector<std::string>& uris,
                                 Validity validity) const {
  CertificateRequest request = {.hosts = {"127.0.0.1", "localhost"}};
  for (const std::string& uri : uris) {
    const absl::StatusOr<Identity> identity = ParseIdentity(uri);
    EXPECT_TRUE(identity.ok()) << identity.status();
    request.identities.push_back(*identity);
  }
  return Write(stem, std::move(request), validity);
}

TlsFiles TestAuthority::Write(std::string_view stem, CertificateRequest request,
                              Validity validity) const {
  request.common_name = std::string(stem);
  request.valid_from = -kDay;
  request.valid_until = validity == Validity::kNow ? kDay : -kDay / 2;
  const absl::StatusOr<IssuedCertificate> issued = authority_.Issue(request);
  EXPECT_TRUE(issued.ok()) << issued.status();
  const std::string path = fmt::format("{}/{}.{}", directory_, name_, stem);
  const TlsFiles files = {.cert = path + ".pem", .key = path + ".key", .ca = ca_file_};
  WriteText(files.cert, issued->cert_pem);
  WriteText(files.key, issued->key_pem);
  return files;
}

}  // namespace tandem
