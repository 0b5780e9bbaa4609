#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "security/identity.h"
#include "security/tls_refusals.h"

namespace tandem {

// What the other side of a connection has shown, after TLS has verified that an authority that is
// trusted here signed it.
struct PeerCertificate {
  bool shown = false;
  std::string subject;            // for messages
  std::vector<std::string> uris;  // of its subject alternative names
};

// Which identities may do something: those of one of the roles, and where `name` is not empty those
// with this name or kAnyName.
struct NeededIdentity {
  std::vector<IdentityRole> roles;
  std::string name = {};

  // "spiffe://tandem/worker/decode-0"
  std::string Text() const;
};

// The one place that compares identities. Every port and every service asks it. Thread-safe.
class PeerCheck {
 public:
  // Refused peers are counted for `port`. `refusals` outlives it; null: they are not counted.
  PeerCheck(TlsPort port, TlsRefusals* refusals) : port_(port), refusals_(refusals) {}

  // UNAUTHENTICATED without a certificate or without an identity in it, PERMISSION_DENIED with
  // another identity. The message names what was presented and what is needed. A certificate may
  // have several identities, of which one is enough. `what`: what is refused, for the message, as
  // "/tandem.v1.Cluster/Register".
  absl::Status Check(const PeerCertificate& peer, const NeededIdentity& needed,
                     std::string_view what) const;

 private:
  absl::Status Refuse(TlsRefusalReason reason, absl::Status status) const;

  const TlsPort port_;
  TlsRefusals* const refusals_;
};

}  // namespace tandem
