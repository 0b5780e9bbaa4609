#pragma once

#include <chrono>
#include <string_view>

#include "security/tls_files.h"
#include "server/check/findings.h"

namespace tandem {

// A certificate that expires sooner is a warning.
inline constexpr std::chrono::hours kExpiryWarning{14 * 24};

// Whether the files can be used at `now`: all are there and readable, the key is the certificate's, the
// certificate is valid now, for longer than kExpiryWarning, and an authority of `files.ca` signed it.
// `flags`: how their flags begin, as "--tls". Files without an authority (HTTPS) are checked without it.
void CheckTls(const TlsFiles& files, std::string_view flags, std::string_view part,
              std::chrono::system_clock::time_point now, Findings& findings);

}  // namespace tandem
