#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem {

// Parses one JSON value. Accepts any bytes. INVALID_ARGUMENT names the field at which parsing
// stopped: not JSON, a number that is not finite (NaN, Infinity, 1e999), nesting deeper than 32, or
// a duplicate key.
absl::StatusOr<nlohmann::json> ParseStrictJson(std::string_view text);

// Returns `text` with every NaN and Infinity outside of strings replaced by 0. Python's json module
// writes these words, although JSON has no such numbers; the result serves to describe a file that
// is refused.
std::string WithoutNonFiniteWords(std::string_view text);

// Formats text from a file for a message: quoted, at most 80 bytes, control characters as '?'.
std::string Quoted(std::string_view text);

// Formats a value for a message: scalars as written, otherwise "an array" or "an object".
std::string Shown(const nlohmann::json& value);

template <typename T>
struct Range {
  T min;
  T max;
};

// Typed, range-checked reads from one JSON object. A null counts as absent, as transformers treats
// it. INVALID_ARGUMENT names the field with its path, its value and what it must be.
// The object must outlive it.
class FieldReader {
 public:
  // `path` is prepended to names in messages, such as "" or "rope_scaling.".
  FieldReader(const nlohmann::json& object, std::string path)
      : object_(object), path_(std::move(path)) {}

  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  // Whether the field is present, even if it is null.
  bool HasKey(std::string_view name) const { return object_.contains(name); }
  // The value, or nullptr when absent or null.
  const nlohmann::json* Find(std::string_view name) const;
  // The name with its path, for messages.
  std::string Path(std::string_view name) const;

  absl::StatusOr<int32_t> Int(std::string_view name, Range<int32_t> range) const;
  absl::StatusOr<int32_t> IntOr(std::string_view name, Range<int32_t> range,
                                int32_t fallback) const;
  absl::StatusOr<double> Double(std::string_view name, Range<double> range) const;
  absl::StatusOr<float> Float(std::string_view name, Range<double> range) const;
  absl::StatusOr<float> FloatOr(std::string_view name, Range<double> range, float fallback) const;
  absl::StatusOr<bool> BoolOr(std::string_view name, bool fallback) const;
  absl::StatusOr<std::string> String(std::string_view name) const;
  absl::StatusOr<std::string> StringOr(std::string_view name, std::string_view fallback) const;
  // A string of 16 hexadecimal digits.
  absl::StatusOr<uint64_t> Hash(std::string_view name) const;

 private:
  absl::Status Missing(std::string_view name) const;

  const nlohmann::json& object_;
  std::string path_;
};

}  // namespace tandem
