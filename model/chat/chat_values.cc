#include "model/chat/chat_values.h"

#include <algorithm>
#include <limits>

#include "base/status.h"
#include "base/utf8.h"

namespace tandem {
namespace {

using jinja::Value;

// Whether a role is one that every model knows. A role that the client makes up could complete a
// control token of the template.
bool IsKnownRole(const std::string& role) {
  constexpr std::string_view kRoles[] = {"system",    "user",     "assistant", "tool",
                                         "developer", "function", "tool_call", "tool_response",
                                         "ipython",   "model"};
  return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
}

}  // namespace

Value ChatValues::Input(const std::string& text) {
  bytes_ += text.size();
  const bool valid = ValidUtf8Prefix(text) == text.size();
  return Value(jinja::Text::FromInput(valid ? text : ReplaceInvalidUtf8(text)));
}

absl::StatusOr<Value> ChatValues::Convert(const ChatJson& json) { return ConvertAt(json, 0); }

absl::StatusOr<Value> ChatValues::ConvertMessages(const ChatJson& messages) {
  std::vector<Value> values;
  for (const ChatJson& message : messages) {
    ASSIGN_OR_RETURN(Value value, ConvertObject(message, 1, /*is_message=*/true));
    values.push_back(std::move(value));
  }
  return jinja::MakeList(std::move(values));
}

absl::StatusOr<Value> ChatValues::ConvertObject(const ChatJson& json, int depth, bool is_message) {
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, item] : json.items()) {
    ++nodes_;
    Value value;
    if (is_message && key == "role" && IsKnownRole(item.get_ref<const std::string&>())) {
      value = Value::String(item.get_ref<const std::string&>());
    } else {
      ASSIGN_OR_RETURN(value, ConvertAt(item, depth + 1));
    }
    RETURN_IF_ERROR(dict->Set(Input(key), std::move(value)));
  }
  return Value(std::shared_ptr<const jinja::Dict>(std::move(dict)));
}

absl::StatusOr<Value> ChatValues::ConvertAt(const ChatJson& json, int depth) {
  ++nodes_;
  if (depth > jinja::kMaxValueDepth) {
    return InvalidArgument("the JSON is nested more than {} deep", jinja::kMaxValueDepth);
  }
  switch (json.type()) {
    case ChatJson::value_t::boolean:
      return Value(json.get<bool>());
    case ChatJson::value_t::number_integer:
      return Value(json.get<int64_t>());
    case ChatJson::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return Value(static_cast<double>(number));
      }
      return Value(static_cast<int64_t>(number));
    }
    case ChatJson::value_t::number_float:
      return Value(json.get<double>());
    case ChatJson::value_t::string:
      return Input(json.get_ref<const std::string&>());
    case ChatJson::value_t::array: {
      std::vector<Value> items;
      for (const ChatJson& item : json) {
        ASSIGN_OR_RETURN(Value value, ConvertAt(item, depth + 1));
        items.push_back(std::move(value));
      }
      return jinja::MakeList(std::move(items));
    }
    case ChatJson::value_t::object:
      return ConvertObject(json, depth, /*is_message=*/false);
    default:
      return Value();
  }
}

}  // namespace tandem
