#include "security/peer_check.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem {
namespace {

std::vector<Identity> IdentitiesIn(const PeerCertificate& peer) {
  std::vector<Identity> all;
  for (const std::string& uri : peer.uris) {
    absl::StatusOr<Identity> identity = ParseIdentity(uri);
    if (identity.ok()) all.push_back(*std::move(identity));
  }
  return all;
}

std::string TextOf(const std::vector<Identity>& identities) {
  std::vector<std::string> uris;
  for (const Identity& identity : identities) uris.push_back(identity.Uri());
  return fmt::format("{}", fmt::join(uris, ", "));
}

}  // namespace

std::string NeededIdentity::Text() const {
  std::vector<std::string> uris;
  for (const IdentityRole role : roles) {
    uris.push_back(
        Identity{.role = role, .name = name.empty() ? std::string(kAnyName) : name}.Uri());
  }
  return fmt::format("{}", fmt::join(uris, " or "));
}

absl::Status PeerCheck::Refuse(TlsRefusalReason reason, absl::Status status) const {
  if (refusals_ != nullptr) {
    const absl::string_view message = status.message();
    refusals_->Add(port_, reason, std::string_view(message.data(), message.size()));
  }
  return status;
}

absl::Status PeerCheck::Check(const PeerCertificate& peer, const NeededIdentity& needed,
                              std::string_view what) const {
  if (!peer.shown) {
    return Refuse(TlsRefusalReason::kNoCertificate,
                  Unauthenticated("{}: no certificate was presented; one for {} is needed", what,
                                  needed.Text()));
  }
  const std::vector<Identity> identities = IdentitiesIn(peer);
  if (identities.empty()) {
    return Refuse(
        TlsRefusalReason::kNoIdentity,
        Unauthenticated("{}: the presented certificate \"{}\" has no identity {}<role>/<name> "
                        "among the URIs of its subject alternative names; one for {} is needed",
                        what, peer.subject, kIdentityPrefix, needed.Text()));
  }
  const auto has_role = [&needed](const Identity& identity) {
    return std::ranges::find(needed.roles, identity.role) != needed.roles.end();
  };
  const auto fits = [&](const Identity& identity) {
    return has_role(identity) &&
           (needed.name.empty() || identity.name == needed.name || identity.name == kAnyName);
  };
  if (std::ranges::any_of(identities, fits)) return absl::OkStatus();
  return Refuse(std::ranges::any_of(identities, has_role) ? TlsRefusalReason::kWrongName
                                                          : TlsRefusalReason::kWrongRole,
                PermissionDenied("{}: a certificate for {} was presented; one for {} is needed",
                                 what, TextOf(identities), needed.Text()));
}

}  // namespace tandem
