#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/openai/api_error.h"
#include "server/openai/body_fields.h"

// What the requests of several APIs with turns have in common.
namespace tandem::openai {

// The name of a field in chats, and in another API.
struct FieldName {
  std::string_view chat;
  std::string_view other;
};
// Replaces the chat's name of the field at fault by the other name, also at the beginning of the
// message.
void RenameFields(std::span<const FieldName> names, ApiError& error);

// Moves a field out of the body; null where the body lacks it.
Json TakeField(Json& body, std::string_view name);

// Calls `read(element, path)` for each element of a list, where path is such as "input[3]".
template <typename Read>
absl::Status ForEach(const Json& list, std::string_view path, const Read& read) {
  if (!list.is_array()) {
    return WithParam(InvalidArgument("{} must be a list; it is {}", path, KindOf(list)), path);
  }
  size_t index = 0;
  for (const Json& element : list) {
    RETURN_IF_ERROR(read(element, fmt::format("{}[{}]", path, index++)));
  }
  return absl::OkStatus();
}

// Sets a variable of the chat template in `chat`, unless the body itself sets it in
// chat_template_kwargs.
absl::Status SetVariable(const BodyFields& body, const char* name, Json value, Json& chat);

// INVALID_ARGUMENT when the field `name` is missing.
absl::Status Require(const BodyFields& fields, std::string_view name);
// Reads a field that must be there.
absl::Status ReadRequired(const BodyFields& fields, std::string_view name, std::string& value);

// The texts of a message's content, which is a string or a list of parts of the given `types`, such
// as "input_text". UNIMPLEMENTED for parts of other types, because messages can only be text.
absl::StatusOr<std::vector<std::string>> TextsOf(const Json& content, const std::string& path,
                                                 std::span<const std::string_view> types);

// The form in which an API expects the description of a tool.
struct ToolForm {
  std::string_view type;          // the only type of tools that is supported
  std::string_view default_type;  // the type if none is given; empty: it must be given
  std::string_view parameters;    // the name of the field with the schema of the parameters
  std::string_view describe;      // the field that describes a tool, for error messages
};
// The body's tools in the form of chats; null where there are none. UNIMPLEMENTED for tools of
// other types, which a server would have to run itself.
absl::StatusOr<Json> ToolsOf(const BodyFields& body, const ToolForm& form);

}  // namespace tandem::openai
