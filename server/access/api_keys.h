#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "router/admission/tenant_policy.h"

namespace tandem {

// What a key lets its holder do.
enum class Scope : uint8_t {
  kGenerate,  // requests, and the status of the service
  kAdmin,     // what concerns all tenants: metrics, and why requests went where they went
};
inline constexpr std::array<std::string_view, 2> kScopeNames = {"generate", "admin"};

struct ApiKey {
  std::string id;      // for people: in the file and in logs
  std::string sha256;  // of the secret, 64 hexadecimal digits
  std::string tenant;
  std::vector<Scope> scopes;

  bool Has(Scope scope) const;
};

// The access file: keys, of which it has only hashes, and limits of tenants. Immutable.
//   {"keys": [{"id": "ci", "sha256": "9f86...", "tenant": "research", "scopes": ["generate"]}],
//    "tenants": {"research": {"requests_per_minute": 600, "tokens_per_minute": 1e6,
//                             "max_in_flight": 64, "weight": 2}},
//    "usual_tenant": {"max_in_flight": 16}}
class AccessFile {
 public:
  static constexpr size_t kMostBytes = 4 << 20;

  // INVALID_ARGUMENT names the element at fault; fields that it does not know are errors.
  static absl::StatusOr<AccessFile> Parse(std::string_view json);
  // NOT_FOUND or PERMISSION_DENIED where it cannot be read. Messages begin with the path.
  static absl::StatusOr<AccessFile> Load(const std::string& path);
  std::string ToJson() const;

  // Null where no key has this secret. The time it takes says nothing of the secrets.
  const ApiKey* Find(std::string_view secret) const;
  const std::vector<ApiKey>& keys() const { return keys_; }
  const TenantPolicy& tenants() const { return tenants_; }

  // ALREADY_EXISTS where a key of that id is there.
  absl::Status Add(ApiKey key);
  // NOT_FOUND where there is none.
  absl::Status Remove(std::string_view id);

 private:
  std::vector<ApiKey> keys_;
  absl::flat_hash_set<std::string> ids_;
  absl::flat_hash_map<std::string, size_t> by_hash_;  // places in keys_
  TenantPolicy tenants_;
};

// As ApiKey::sha256.
std::string HashOfSecret(std::string_view secret);
// A new secret, "tdm-" and 43 characters that stand for 256 random bits. INTERNAL where the system has no randomness.
absl::StatusOr<std::string> NewSecret();

}  // namespace tandem
