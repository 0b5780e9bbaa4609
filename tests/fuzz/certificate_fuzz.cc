// PEM files and identities of foreign bytes, as in a certificate that a peer shows.
#include <openssl/err.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "security/certificate.h"
#include "security/identity.h"
#include "security/openssl_parts.h"

namespace tandem {
namespace {

void ReadAsIdentity(std::string_view uri) {
  const auto identity = ParseIdentity(uri);
  if (!identity.ok()) return;
  TANDEM_CHECK(identity->Uri() == uri, "an identity that was not given");
  TANDEM_CHECK(MakeIdentity(Name(identity->role), identity->name).ok(), "a name that cannot be");
}

void ReadAsPem(std::string_view pem) {
  const auto info = ReadCertificateInfo(pem);
  const auto all = ParseCertificates(pem);
  if (all.ok()) {
    TANDEM_CHECK(!all->empty() && info.ok(), "certificates of which the first cannot be read");
    TANDEM_CHECK(ParseCertificates(PemOf(all->front().get())).ok(), "printed otherwise");
    CheckTrusted(pem, pem).IgnoreError();
  }
  if (info.ok()) {
    for (const std::string& uri : info->uris) ReadAsIdentity(uri);
  }
  ParseKey(pem).IgnoreError();
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  tandem::ReadAsIdentity(text);
  tandem::ReadAsPem(text);
  // What is queued in OpenSSL would be told of the next connection of this thread.
  TANDEM_CHECK(ERR_peek_error() == 0, "errors are left behind");
  return 0;
}
