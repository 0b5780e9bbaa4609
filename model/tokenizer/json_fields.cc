#include "model/tokenizer/json_fields.h"

#include <algorithm>

#include "base/json.h"
#include "base/status.h"
#include "base/utf8.h"
#include "fmt/ranges.h"

namespace tandem {

using Json = nlohmann::json;

std::string Excerpt(const Json& value) {
  constexpr size_t kMaxLength = 60;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = JsonText(value);
  if (text.size() <= kMaxLength) return text;
  text.resize(ValidUtf8Prefix(std::string_view(text).substr(0, kMaxLength)));
  return text + "...";
}

std::optional<int32_t> AsIndex(const Json& value, int32_t limit) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t index = value.get<uint64_t>();
  if (index >= static_cast<uint64_t>(limit)) return std::nullopt;
  return static_cast<int32_t>(index);
}

absl::StatusOr<JsonFields> JsonFields::Of(const Json& value, std::string path) {
  if (!value.is_object()) {
    return InvalidArgument("{}: expected an object, found {}", path, Excerpt(value));
  }
  return JsonFields(value, std::move(path));
}

absl::Status JsonFields::RefuseOthers(std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : json_->items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Unimplemented("{}: this build does not know the field; supported: {}", PathOf(key),
                           fmt::join(known, ", "));
    }
  }
  return absl::OkStatus();
}

const Json* JsonFields::Find(std::string_view key) const {
  const auto found = json_->find(key);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<const Json*> JsonFields::Array(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array()) {
    return InvalidArgument("{}: expected an array, found {}", PathOf(key),
                           value == nullptr ? "nothing" : Excerpt(*value));
  }
  return value;
}

absl::StatusOr<JsonFields> JsonFields::Object(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr)
    return InvalidArgument("{}: expected an object, found nothing", PathOf(key));
  return Of(*value, PathOf(key));
}

absl::StatusOr<std::string> JsonFields::String(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_string()) {
    return InvalidArgument("{}: expected a string, found {}", PathOf(key),
                           value == nullptr ? "nothing" : Excerpt(*value));
  }
  return value->get_ref<const std::string&>();
}

absl::StatusOr<std::string> JsonFields::String(std::string_view key,
                                               std::string_view fallback) const {
  if (Find(key) == nullptr) return std::string(fallback);
  return String(key);
}

absl::StatusOr<bool> JsonFields::Bool(std::string_view key, bool fallback) const {
  const Json* value = Find(key);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    return InvalidArgument("{}: expected true or false, found {}", PathOf(key), Excerpt(*value));
  }
  return value->get<bool>();
}

absl::StatusOr<int32_t> JsonFields::Index(std::string_view key, int32_t limit) const {
  const Json* value = Find(key);
  const std::optional<int32_t> index = value == nullptr ? std::nullopt : AsIndex(*value, limit);
  if (!index.has_value()) {
    return InvalidArgument("{}: expected an integer in [0, {}), found {}", PathOf(key), limit,
                           value == nullptr ? "nothing" : Excerpt(*value));
  }
  return *index;
}

absl::Status CheckDepth(int depth, std::string_view path) {
  constexpr int kMaxDepth = 8;
  if (depth <= kMaxDepth) return absl::OkStatus();
  return Unimplemented("{}: nested deeper than {}", path, kMaxDepth);
}

std::string JsonFields::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

}  // namespace tandem
