#include "security/identity.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/status.h"

namespace tandem {
namespace {

constexpr size_t kMostNameBytes = 128;

constexpr std::pair<std::string_view, IdentityRole> kRoles[] = {{"router", IdentityRole::kRouter},
                                                                {"worker", IdentityRole::kWorker},
                                                                {"client", IdentityRole::kClient},
                                                                {"admin", IdentityRole::kAdmin}};

bool IsNameCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
}

bool IsName(std::string_view name) {
  if (name == kAnyName) return true;
  return !name.empty() && name.size() <= kMostNameBytes &&
         std::ranges::all_of(name, IsNameCharacter);
}

}  // namespace

std::string_view Name(IdentityRole role) {
  return std::ranges::find(kRoles, role, [](const auto& entry) { return entry.second; })->first;
}

std::string Identity::Uri() const {
  return fmt::format("{}{}/{}", kIdentityPrefix, Name(role), name);
}

absl::StatusOr<Identity> MakeIdentity(std::string_view role, std::string_view name) {
  const auto* const known =
      std::ranges::find(kRoles, role, [](const auto& entry) { return entry.first; });
  if (known == std::ranges::end(kRoles)) {
    return InvalidArgument("\"{}\" is no role: use router, worker, client or admin", role);
  }
  if (!IsName(name)) {
    return InvalidArgument(
        "\"{}\" is no name of an identity: use at most {} letters, digits, '.', '-' and '_', or "
        "\"*\" alone",
        name, kMostNameBytes);
  }
  return Identity{.role = known->second, .name = std::string(name)};
}

absl::StatusOr<Identity> ParseIdentity(std::string_view uri) {
  const std::string_view prefix = kIdentityPrefix;
  const size_t slash = uri.find('/', prefix.size());
  if (!uri.starts_with(prefix) || slash == std::string_view::npos) {
    return InvalidArgument("\"{}\" is no identity of the form {}<role>/<name>", uri, prefix);
  }
  return MakeIdentity(uri.substr(prefix.size(), slash - prefix.size()), uri.substr(slash + 1));
}

}  // namespace tandem
