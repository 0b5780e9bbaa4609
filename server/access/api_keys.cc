#include "server/access/api_keys.h"

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"
#include "router/cluster/registration_check.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kHashDigits = 64;
constexpr double kMostPerMinute = 1e12;
constexpr double kMostWeight = 1e6;
constexpr double kMostInFlight = 1 << 20;

absl::StatusOr<Json> ParseFile(std::string_view text) {
  constexpr size_t kMostLevels = 8;
  ParsedJson parsed = ParseOrderedJson(text, {.depth = kMostLevels});
  if (!parsed.fault) return std::move(parsed.value);
  if (parsed.fault->kind == JsonFault::Kind::kTooDeep) {
    return InvalidArgument("it is nested more than {} levels deep", kMostLevels);
  }
  return InvalidArgument("it is no JSON");
}

absl::Status CheckFields(const Json& object, const std::string& what,
                         const std::set<std::string>& known) {
  if (!object.is_object()) return InvalidArgument("{}: must be an object", what);
  for (const auto& [name, value] : object.items()) {
    if (known.contains(name)) continue;
    return InvalidArgument("{}: no field is called {}; there are {}", what, name,
                           fmt::join(known, ", "));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadText(const Json& object, const std::string& what,
                                     const char* field) {
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string()) {
    return InvalidArgument("{}.{}: must be a text", what, field);
  }
  return found->get<std::string>();
}

absl::StatusOr<double> ReadAmount(const Json& value, const std::string& what, double most) {
  if (value.is_number()) {
    const double amount = value.get<double>();
    if (amount > 0 && amount <= most) return amount;
  }
  return InvalidArgument("{}: {} is no number above 0 and up to {:g}", what, JsonText(value), most);
}

absl::StatusOr<TenantLimits> ReadLimits(const Json& object, const std::string& what) {
  RETURN_IF_ERROR(CheckFields(
      object, what, {"requests_per_minute", "tokens_per_minute", "max_in_flight", "weight"}));
  TenantLimits limits;
  for (const auto& [name, value] : object.items()) {
    const std::string field = fmt::format("{}.{}", what, name);
    if (name == "requests_per_minute") {
      ASSIGN_OR_RETURN(limits.requests_per_minute, ReadAmount(value, field, kMostPerMinute));
    } else if (name == "tokens_per_minute") {
      ASSIGN_OR_RETURN(limits.tokens_per_minute, ReadAmount(value, field, kMostPerMinute));
    } else if (name == "max_in_flight") {
      ASSIGN_OR_RETURN(const double rows, ReadAmount(value, field, kMostInFlight));
      if (rows != std::floor(rows)) return InvalidArgument("{}: must be a whole number", field);
      limits.max_in_flight = static_cast<int32_t>(rows);
    } else {
      ASSIGN_OR_RETURN(limits.weight, ReadAmount(value, field, kMostWeight));
    }
  }
  return limits;
}

absl::StatusOr<std::vector<Scope>> ReadScopes(const Json& object, const std::string& what) {
  const auto found = object.find("scopes");
  if (found == object.end()) return std::vector<Scope>{Scope::kGenerate};
  if (!found->is_array() || found->empty()) {
    return InvalidArgument("{}.scopes: must be a list of {}", what, fmt::join(kScopeNames, ", "));
  }
  std::vector<Scope> scopes;
  for (const Json& name : *found) {
    const auto at = std::ranges::find(kScopeNames, name.is_string() ? name.get<std::string>() : "");
    if (at == kScopeNames.end()) {
      return InvalidArgument("{}.scopes: {} is none of {}", what, JsonText(name),
                             fmt::join(kScopeNames, ", "));
    }
    scopes.push_back(static_cast<Scope>(at - kScopeNames.begin()));
  }
  return scopes;
}

absl::StatusOr<ApiKey> ReadKey(const Json& object, const std::string& what) {
  RETURN_IF_ERROR(CheckFields(object, what, {"id", "sha256", "tenant", "scopes"}));
  ApiKey key;
  ASSIGN_OR_RETURN(key.id, ReadText(object, what, "id"));
  ASSIGN_OR_RETURN(key.sha256, ReadText(object, what, "sha256"));
  ASSIGN_OR_RETURN(key.tenant, ReadText(object, what, "tenant"));
  ASSIGN_OR_RETURN(key.scopes, ReadScopes(object, what));
  RETURN_IF_ERROR(Annotate(CheckName("id", key.id), what));
  RETURN_IF_ERROR(Annotate(CheckName("tenant", key.tenant), what));
  const bool is_hash = key.sha256.size() == kHashDigits &&
                       key.sha256.find_first_not_of("0123456789abcdef") == std::string::npos;
  // The message does not repeat the value: the secret itself may have been written there.
  if (!is_hash) {
    return InvalidArgument("{}.sha256: must be 64 hexadecimal digits in lower case", what);
  }
  return key;
}

Json LimitsJson(const TenantLimits& limits) {
  Json json = Json::object();
  if (limits.requests_per_minute) json["requests_per_minute"] = *limits.requests_per_minute;
  if (limits.tokens_per_minute) json["tokens_per_minute"] = *limits.tokens_per_minute;
  if (limits.max_in_flight) json["max_in_flight"] = *limits.max_in_flight;
  if (limits.weight != TenantLimits().weight) json["weight"] = limits.weight;
  return json;
}

}  // namespace

bool ApiKey::Has(Scope scope) const { return std::ranges::find(scopes, scope) != scopes.end(); }

absl::StatusOr<AccessFile> AccessFile::Parse(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseFile(text));
  RETURN_IF_ERROR(CheckFields(json, "the file", {"keys", "tenants", "usual_tenant"}));
  AccessFile file;
  const Json keys = json.value("keys", Json::array());
  if (!keys.is_array()) return InvalidArgument("keys: must be a list");
  for (size_t i = 0; i < keys.size(); ++i) {
    ASSIGN_OR_RETURN(ApiKey key, ReadKey(keys[i], fmt::format("keys[{}]", i)));
    RETURN_IF_ERROR(file.Add(std::move(key)));
  }
  const Json tenants = json.value("tenants", Json::object());
  if (!tenants.is_object()) return InvalidArgument("tenants: must be an object");
  for (const auto& [name, limits] : tenants.items()) {
    RETURN_IF_ERROR(CheckName("tenant", name));
    ASSIGN_OR_RETURN(file.tenants_.tenants[name], ReadLimits(limits, "tenants." + name));
    file.tenants_.named.insert(name);
  }
  if (const auto usual = json.find("usual_tenant"); usual != json.end()) {
    ASSIGN_OR_RETURN(file.tenants_.usual, ReadLimits(*usual, "usual_tenant"));
  }
  return file;
}

absl::StatusOr<AccessFile> AccessFile::Load(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return NotFound("{}: cannot be opened: {}", path, ErrnoMessage(errno));
  std::string text(kMostBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) return NotFound("{}: cannot be read", path);
  text.resize(static_cast<size_t>(stream.gcount()));
  if (text.size() > kMostBytes) {
    return InvalidArgument("{}: an access file has at most {} bytes", path, kMostBytes);
  }
  auto file = Parse(text);
  RETURN_IF_ERROR(Annotate(file.status(), path));
  return file;
}

std::string AccessFile::ToJson() const {
  Json keys = Json::array();
  for (const ApiKey& key : keys_) {
    Json scopes = Json::array();
    for (const Scope scope : key.scopes) scopes.push_back(kScopeNames[static_cast<size_t>(scope)]);
    keys.push_back(
        {{"id", key.id}, {"sha256", key.sha256}, {"tenant", key.tenant}, {"scopes", scopes}});
  }
  Json tenants = Json::object();
  for (const auto& [name, limits] : tenants_.tenants) tenants[name] = LimitsJson(limits);
  Json json = {{"keys", keys}, {"tenants", tenants}};
  const Json usual = LimitsJson(tenants_.usual);
  if (!usual.empty()) json["usual_tenant"] = usual;
  return JsonText(json, 2) + "\n";
}

// The hash of a guess differs from the hashes of the file at unforeseeable positions, so that the
// time of the comparison reveals nothing about a secret.
const ApiKey* AccessFile::Find(std::string_view secret) const {
  const auto found = by_hash_.find(HashOfSecret(secret));
  return found == by_hash_.end() ? nullptr : &keys_[found->second];
}

absl::Status AccessFile::Add(ApiKey key) {
  if (ids_.contains(key.id)) {
    return absl::AlreadyExistsError(fmt::format("there is a key of the id {} already", key.id));
  }
  const auto [other, is_new] = by_hash_.try_emplace(key.sha256, keys_.size());
  if (!is_new) {
    return absl::AlreadyExistsError(
        fmt::format("the keys {} and {} have the same secret", keys_[other->second].id, key.id));
  }
  ids_.insert(key.id);
  tenants_.named.insert(key.tenant);
  keys_.push_back(std::move(key));
  return absl::OkStatus();
}

absl::Status AccessFile::Remove(std::string_view id) {
  if (std::erase_if(keys_, [id](const ApiKey& key) { return key.id == id; }) == 0) {
    return NotFound("there is no key of the id {}", id);
  }
  ids_.erase(std::string(id));
  by_hash_.clear();
  for (size_t i = 0; i < keys_.size(); ++i) by_hash_[keys_[i].sha256] = i;
  return absl::OkStatus();
}

std::string HashOfSecret(std::string_view secret) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned int size = 0;
  EVP_Digest(secret.data(), secret.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
}

absl::StatusOr<std::string> NewSecret() {
  constexpr size_t kBytes = 32;
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::array<unsigned char, kBytes> bytes = {};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) {
    return Internal("the system gives no random numbers");
  }
  std::string secret = "tdm-";
  uint32_t bits = 0;
  int held = 0;
  for (const unsigned char byte : bytes) {
    bits = (bits << 8) | byte;
    for (held += 8; held >= 6; held -= 6) secret += kDigits[(bits >> (held - 6)) & 63];
  }
  secret += kDigits[(bits << (6 - held)) & 63];
  return secret;
}

}  // namespace tandem
