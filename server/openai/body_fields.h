#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "server/openai/json_body.h"

namespace tandem::openai {

// The fields of a JSON object in a request's body. A field that is null counts as missing. Errors
// are INVALID_ARGUMENT and name the field (WithParam). It is a view: the object must outlive it.
class BodyFields {
 public:
  // INVALID_ARGUMENT when `value` is no object. `path` is where the object is in the body, for
  // errors; empty for the body itself.
  static absl::StatusOr<BodyFields> Of(const Json& value, std::string path);

  // The value of a field; null when it is missing or its value is null.
  const Json* Find(std::string_view name) const;

  // Each Read leaves `value` as it is where the field is missing.
  absl::Status Read(std::string_view name, bool& value) const;
  absl::Status Read(std::string_view name, int32_t& value) const;
  absl::Status Read(std::string_view name, int64_t& value) const;
  absl::Status Read(std::string_view name, double& value) const;
  absl::Status Read(std::string_view name, float& value) const;
  absl::Status Read(std::string_view name, std::string& value) const;
  absl::Status Read(std::string_view name, std::vector<int32_t>& value) const;
  // Reads a field that is a string or a list of strings.
  absl::Status Read(std::string_view name, std::vector<std::string>& value) const;
  template <typename T>
  absl::Status Read(std::string_view name, std::optional<T>& value) const {
    if (Find(name) == nullptr) return absl::OkStatus();
    return Read(name, value.emplace());
  }

  // The object in that field; nothing when it is missing.
  absl::StatusOr<std::optional<BodyFields>> Object(std::string_view name) const;

  std::string PathOf(std::string_view name) const;
  const Json& json() const { return *json_; }

 private:
  BodyFields(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  absl::Status WrongType(std::string_view name, std::string_view wanted) const;
  absl::Status ReadInteger(std::string_view name, int64_t least, int64_t most,
                           int64_t& value) const;

  const Json* json_;
  std::string path_;
};

// The type of a JSON value for error messages: "a string", "an array" and so on.
std::string_view KindOf(const Json& value);

// The integer that `value` is, if it is one and an int32. 5.0 counts, because clients in languages
// without integers write it.
std::optional<int32_t> AsInt32(const Json& value);

}  // namespace tandem::openai
