#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// What a process is, by its certificate.
enum class IdentityRole : uint8_t { kRouter, kWorker, kClient, kAdmin };

std::string_view Name(IdentityRole role);  // "router"

// In place of a name: the certificate is shared by all processes of its role.
inline constexpr char kAnyName[] = "*";
// Every identity begins with it; followed by "<role>/<name>". The form is a SPIFFE ID, which
// cert-manager and others can put into certificates as the URI of a subject alternative name.
inline constexpr char kIdentityPrefix[] = "spiffe://tandem/";

// The role and name of a process.
struct Identity {
  IdentityRole role = IdentityRole::kClient;
  std::string name;  // or kAnyName

  std::string Uri() const;
  friend bool operator==(const Identity&, const Identity&) = default;
};

// INVALID_ARGUMENT says what is wrong with the role or the name. Names have at most 128 letters,
// digits, '.', '-' and '_', or are kAnyName.
absl::StatusOr<Identity> MakeIdentity(std::string_view role, std::string_view name);
// The same of a whole URI.
absl::StatusOr<Identity> ParseIdentity(std::string_view uri);

}  // namespace tandem
