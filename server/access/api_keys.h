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

// What the holder of an API key may do.
enum class Scope : uint8_t {
  kGenerate,  // send requests and read the status of the service
  kAdmin,     // read what concerns all tenants: metrics, and routing decisions
};
inline constexpr std::array<std::string_view, 2> kScopeNames = {"generate", "admin"};

struct ApiKey {
  std::string id;      // name of the key for people, in the file and in logs
  std::string sha256;  // SHA-256 of the secret, 64 hexadecimal digits
  std::string tenant;
  std::vector<Scope> scopes;

  bool Has(Scope scope) const;
};

// The access file: API keys, of which it stores only hashes, and limits of tenants. Immutable.
//   {"keys": [{"id": "ci", "sha256": "9f86...", "tenant": "research", "scopes": ["generate"]}],
//    "tenants": {"research": {"requests_per_minute": 600, "tokens_per_minute": 1e6,
//                             "max_in_flight": 64, "weight": 2}},
//    "usual_tenant": {"max_in_flight": 16}}
class AccessFile {
 public:
  static constexpr size_t kMostBytes = 4 << 20;

  // Parses the content of an access file. INVALID_ARGUMENT names the element at fault; unknown
  // fields are errors.
  static absl::StatusOr<AccessFile> Parse(std::string_view json);
  // Reads the file at `path`. NOT_FOUND or PERMISSION_DENIED where it cannot be read, otherwise the
  // errors of Parse. Messages begin with the path.
  static absl::StatusOr<AccessFile> Load(const std::string& path);
  std::string ToJson() const;

  // The key with this secret, or null. The time that this takes reveals nothing about the secrets.
  const ApiKey* Find(std::string_view secret) const;
  const std::vector<ApiKey>& keys() const { return keys_; }
  const TenantPolicy& tenants() const { return tenants_; }

  // Adds a key. ALREADY_EXISTS where there is a key with its id.
  absl::Status Add(ApiKey key);
  // Removes the key with this id. NOT_FOUND where there is none.
  absl::Status Remove(std::string_view id);

 private:
  std::vector<ApiKey> keys_;
  absl::flat_hash_set<std::string> ids_;
  absl::flat_hash_map<std::string, size_t> by_hash_;  // secret's hash to index in keys_
  TenantPolicy tenants_;
};

// The SHA-256 of a secret, in the form of ApiKey::sha256.
std::string HashOfSecret(std::string_view secret);
// Makes a new secret: "tdm-" and 43 characters that encode 256 random bits. INTERNAL where the
// system provides no randomness.
absl::StatusOr<std::string> NewSecret();

}  // namespace tandem
