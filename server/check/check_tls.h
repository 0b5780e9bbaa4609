#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "security/peer_check.h"
#include "security/tls_files.h"
#include "server/check/findings.h"

namespace tandem {

// A certificate that expires within this time is a warning.
inline constexpr std::chrono::hours kExpiryWarning{14 * 24};

// What the TLS files of a process are used for.
struct TlsUse {
  std::string_view flags;                  // how their flags begin, as "--tls"
  std::string_view part;                   // whose they are, as "decode-0"
  std::optional<NeededIdentity> identity;  // which peers require of the process; nothing: none
};

// Whether the files can be used at `now`: all are there and readable, the key is the certificate's,
// the certificate is valid now, for longer than kExpiryWarning, an authority of `files.ca` signed
// it, and it has the identity that others ask for. Files without an authority (HTTPS) are checked
// without it.
void CheckTls(const TlsFiles& files, const TlsUse& use, std::chrono::system_clock::time_point now,
              Findings& findings);

}  // namespace tandem
