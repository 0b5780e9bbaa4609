#include "server/openai/body_fields.h"

#include <cmath>
#include <limits>

#include "server/openai/api_error.h"

namespace tandem::openai {
namespace {

// The integer that `value` is, if an int64 holds it.
std::optional<int64_t> AsInt64(const Json& value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53: beyond it a double may have been rounded
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const auto number = value.get<double>();
  if (std::abs(number) > kExact || std::trunc(number) != number) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

std::string_view KindOf(const Json& value) {
  if (value.is_null()) return "null";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number()) return "a number";
  if (value.is_string()) return "a string";
  return value.is_array() ? "an array" : "an object";
}

std::optional<int32_t> AsInt32(const Json& value) {
  const std::optional<int64_t> number = AsInt64(value);
  if (!number || *number < std::numeric_limits<int32_t>::min() ||
      *number > std::numeric_limits<int32_t>::max()) {
    return std::nullopt;
  }
  return static_cast<int32_t>(*number);
}

absl::StatusOr<BodyFields> BodyFields::Of(const Json& value, std::string path) {
  if (value.is_object()) return BodyFields(value, std::move(path));
  if (path.empty())
    return InvalidArgument("the body must be a JSON object; it is {}", KindOf(value));
  return WithParam(InvalidArgument("{} must be an object; it is {}", path, KindOf(value)), path);
}

std::string BodyFields::PathOf(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* BodyFields::Find(std::string_view name) const {
  const auto found = json_->find(name);
  return found == json_->end() || found->is_null() ? nullptr : &*found;
}

absl::Status BodyFields::WrongType(std::string_view name, std::string_view wanted) const {
  const std::string path = PathOf(name);
  return WithParam(InvalidArgument("{} must be {}; it is {}", path, wanted, KindOf(*Find(name))),
                   path);
}

absl::Status BodyFields::Read(std::string_view name, bool& value) const {
  const Json* found = Find(name);
  if (found == nullptr) return absl::OkStatus();
  if (!found->is_boolean()) return WrongType(name, "true or false");
  value = found->get<bool>();
  return absl::OkStatus();
}

absl::Status BodyFields::ReadInteger(std::string_view name, int64_t least, int64_t most,
                                     int64_t& value) const {
  const Json* found = Find(name);
  if (found == nullptr) return absl::OkStatus();
  if (!found->is_number()) return WrongType(name, "an integer");
  const std::optional<int64_t> number = AsInt64(*found);
  const std::string path = PathOf(name);
  if (!number || *number < least || *number > most) {
    return WithParam(InvalidArgument("{}={} must be an integer in [{}, {}]", path, JsonText(*found),
                                     least, most),
                     path);
  }
  value = *number;
  return absl::OkStatus();
}

absl::Status BodyFields::Read(std::string_view name, int64_t& value) const {
  return ReadInteger(name, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                     value);
}

absl::Status BodyFields::Read(std::string_view name, int32_t& value) const {
  int64_t wide = value;
  RETURN_IF_ERROR(ReadInteger(name, std::numeric_limits<int32_t>::min(),
                              std::numeric_limits<int32_t>::max(), wide));
  value = static_cast<int32_t>(wide);
  return absl::OkStatus();
}

absl::Status BodyFields::Read(std::string_view name, double& value) const {
  const Json* found = Find(name);
  if (found == nullptr) return absl::OkStatus();
  if (!found->is_number()) return WrongType(name, "a number");
  value = found->get<double>();
  return absl::OkStatus();
}

absl::Status BodyFields::Read(std::string_view name, float& value) const {
  double wide = value;
  RETURN_IF_ERROR(Read(name, wide));
  if (std::abs(wide) > std::numeric_limits<float>::max()) {
    const std::string path = PathOf(name);
    return WithParam(InvalidArgument("{}={} is too large", path, wide), path);
  }
  value = static_cast<float>(wide);
  return absl::OkStatus();
}

absl::Status BodyFields::Read(std::string_view name, std::string& value) const {
  const Json* found = Find(name);
  if (found == nullptr) return absl::OkStatus();
  if (!found->is_string()) return WrongType(name, "a string");
  value = found->get_ref<const std::string&>();
  return absl::OkStatus();
}

absl::Status BodyFields::Read(std::string_view name, std::vector<int32_t>& value) const {
  const Json* found = Find(name);
  if (found == nullptr) return absl::OkStatus();
  if (!found->is_array()) return WrongType(name, "a list of integers");
  value.clear();
  value.reserve(found->size());
  for (const Json& element : *found) {
    const std::optional<int32_t> number = AsInt32(element);
    if (!number) {
      const std::string path = fmt::format("{}[{}]", PathOf(name), value.size());
      return WithParam(InvalidArgument("{} must be an integer; it is {}", path,
                                       element.is_number() ? JsonText(element) : KindOf(element)),
                       path);
    }
    value.push_back(*number);
  }
  return absl::OkStatus();
}

absl::Status BodyFields::Read(std::string_view name, std::vector<std::string>& value) const {
  const Json* found = Find(name);
  if (found == nullptr) return absl::OkStatus();
  value.clear();
  if (found->is_string()) {
    value.push_back(found->get_ref<const std::string&>());
    return absl::OkStatus();
  }
  if (!found->is_array()) return WrongType(name, "a string or a list of strings");
  for (const Json& element : *found) {
    if (!element.is_string()) {
      const std::string path = fmt::format("{}[{}]", PathOf(name), value.size());
      return WithParam(InvalidArgument("{} must be a string; it is {}", path, KindOf(element)),
                       path);
    }
    value.push_back(element.get_ref<const std::string&>());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<BodyFields>> BodyFields::Object(std::string_view name) const {
  const Json* found = Find(name);
  if (found == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(BodyFields fields, Of(*found, PathOf(name)));
  return fields;
}

}  // namespace tandem::openai
