#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// Paths of PEM files.
struct TlsFiles {
  std::string cert;  // this process's certificate, and the chain from it to the authority
  std::string key;   // the private key of that certificate, not encrypted
  std::string ca;    // the authorities that are trusted to sign certificates of others

  friend bool operator==(const TlsFiles&, const TlsFiles&) = default;

  // For a process that others connect to: INVALID_ARGUMENT unless all three are given or none.
  // `flags`: how the flags of the files begin, as "--tls" or "--kv-tls".
  absl::Status Check(std::string_view flags = "--tls") const;
  // For a client, which may do without a certificate of its own: `ca` alone is enough.
  absl::Status CheckClient() const;

  // Whether there is a certificate.
  bool enabled() const { return !cert.empty(); }
  // Whether connections of a client with these files use TLS.
  bool enabled_for_client() const { return !ca.empty(); }
};

}  // namespace tandem
