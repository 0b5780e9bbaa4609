#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem {

// A JSON object with its path in the document, so that every error names its field:
// "pre_tokenizer.pretokenizers[1].behavior: ...". It is a view; the document must outlive it.
class JsonFields {
 public:
  using Json = nlohmann::json;

  // The fields of `value`. INVALID_ARGUMENT when it is not an object.
  static absl::StatusOr<JsonFields> Of(const Json& value, std::string path);

  // Refuses unknown fields: UNIMPLEMENTED for the first one that is not in `known`.
  absl::Status RefuseOthers(std::initializer_list<std::string_view> known) const;

  // The value of the field; null when the field is missing or null.
  const Json* Find(std::string_view key) const;

  // The field as a value of one type. INVALID_ARGUMENT when it is missing or of another type. The
  // overloads with a default return it for a missing or null field.
  absl::StatusOr<const Json*> Array(std::string_view key) const;
  absl::StatusOr<JsonFields> Object(std::string_view key) const;
  absl::StatusOr<std::string> String(std::string_view key) const;
  absl::StatusOr<std::string> String(std::string_view key, std::string_view fallback) const;
  absl::StatusOr<bool> Bool(std::string_view key, bool fallback) const;
  absl::StatusOr<int32_t> Index(std::string_view key, int32_t limit) const;  // in [0, limit)

  std::string PathOf(std::string_view key) const;
  const std::string& path() const { return path_; }
  const Json& json() const { return *json_; }

 private:
  JsonFields(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  const Json* json_;
  std::string path_;
};

// A short form of `value` for an error message.
std::string Excerpt(const nlohmann::json& value);

// UNIMPLEMENTED when `depth` says that sequences of steps are nested too deeply.
absl::Status CheckDepth(int depth, std::string_view path);

// Returns `value` if it is an integer in [0, limit).
std::optional<int32_t> AsIndex(const nlohmann::json& value, int32_t limit);

}  // namespace tandem
