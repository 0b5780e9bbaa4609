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
// Gives the field at fault, and the message where it begins with it, the other name.
void RenameFields(std::span<const FieldName> names, ApiError& error);

// Moves the field out of the body; null where there is none.
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

// Sets a variable of the template in `chat`, in which the body's own variables win.
absl::Status SetVariable(const BodyFields& body, const char* name, Json value, Json& chat);

// INVALID_ARGUMENT when the field is missing.
absl::Status Require(const BodyFields& fields, std::string_view name);
// Reads a field that must be there.
absl::Status ReadRequired(const BodyFields& fields, std::string_view name, std::string& value);

// The texts of a content, which is a string or a list of parts of these types, such as "input_text".
// UNIMPLEMENTED for parts of another type: messages are text.
absl::StatusOr<std::vector<std::string>> TextsOf(const Json& content, const std::string& path,
                                                 std::span<const std::string_view> types);

// How an API writes a tool that its client describes.
struct ToolForm {
  std::string_view type;          // of the only kind of tools that is supported
  std::string_view default_type;  // where `type` is left out; empty: it must be there
  std::string_view parameters;    // the field with their schema
  std::string_view describe;      // how a client describes a tool, for messages
};
// The body's tools in the form of chats; null where there are none. UNIMPLEMENTED for tools of other
// types, which a server would have to run itself.
absl::StatusOr<Json> ToolsOf(const BodyFields& body, const ToolForm& form);

}  // namespace tandem::openai
