#include "server/openai/api_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tandem::openai {
namespace {

bool IsNameCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Whether `text` begins with the whole name.
bool BeginsWith(std::string_view text, std::string_view name) {
  return text.starts_with(name) &&
         (text.size() == name.size() || !IsNameCharacter(text[name.size()]));
}

}  // namespace

void RenameFields(std::span<const FieldName> names, ApiError& error) {
  for (const FieldName& name : names) {
    if (!BeginsWith(error.param, name.chat)) continue;
    error.param.replace(0, name.chat.size(), name.other);
    if (BeginsWith(error.message, name.chat)) {
      error.message.replace(0, name.chat.size(), name.other);
    }
    return;
  }
}

Json TakeField(Json& body, std::string_view name) {
  const auto found = body.find(name);
  return found == body.end() ? Json(nullptr) : std::move(*found);
}

absl::Status SetVariable(const BodyFields& body, const char* name, Json value, Json& chat) {
  ASSIGN_OR_RETURN(const std::optional<BodyFields> given, body.Object("chat_template_kwargs"));
  Json variables = given ? given->json() : Json::object();
  if (!variables.contains(name)) variables[name] = std::move(value);
  chat["chat_template_kwargs"] = std::move(variables);
  return absl::OkStatus();
}

absl::Status Require(const BodyFields& fields, std::string_view name) {
  if (fields.Find(name) != nullptr) return absl::OkStatus();
  const std::string path = fields.PathOf(name);
  return WithParam(InvalidArgument("{} is missing", path), path);
}

absl::Status ReadRequired(const BodyFields& fields, std::string_view name, std::string& value) {
  RETURN_IF_ERROR(Require(fields, name));
  return fields.Read(name, value);
}

absl::StatusOr<std::vector<std::string>> TextsOf(const Json& content, const std::string& path,
                                                 std::span<const std::string_view> types) {
  std::vector<std::string> texts;
  if (content.is_string()) {
    texts.push_back(content.get_ref<const std::string&>());
    return texts;
  }
  RETURN_IF_ERROR(
      ForEach(content, path, [&](const Json& element, const std::string& at) -> absl::Status {
        ASSIGN_OR_RETURN(const BodyFields part, BodyFields::Of(element, at));
        std::string type;
        RETURN_IF_ERROR(ReadRequired(part, "type", type));
        if (std::find(types.begin(), types.end(), type) == types.end()) {
          return WithParam(Unimplemented("{}.type={} is not supported: messages are text", at,
                                         JsonString(type.substr(0, 40))),
                           path);
        }
        return ReadRequired(part, type == "refusal" ? "refusal" : "text", texts.emplace_back());
      }));
  return texts;
}

namespace {

absl::StatusOr<Json> FunctionTool(const Json& json, const std::string& path, const ToolForm& form) {
  ASSIGN_OR_RETURN(const BodyFields tool, BodyFields::Of(json, path));
  std::string type(form.default_type);
  RETURN_IF_ERROR(type.empty() ? ReadRequired(tool, "type", type) : tool.Read("type", type));
  if (type != form.type) {
    return WithParam(Unimplemented("{}.type={} is not supported: no tools are run here; describe "
                                   "your own with {}",
                                   path, JsonString(type.substr(0, 40)), form.describe),
                     "tools");
  }
  std::string name;
  RETURN_IF_ERROR(ReadRequired(tool, "name", name));
  Json function;
  function["name"] = std::move(name);
  if (const Json* description = tool.Find("description")) function["description"] = *description;
  if (const Json* schema = tool.Find(form.parameters)) function["parameters"] = *schema;
  if (const Json* strict = tool.Find("strict")) function["strict"] = *strict;
  Json chat;
  chat["type"] = "function";
  chat["function"] = std::move(function);
  return chat;
}

}  // namespace

absl::StatusOr<Json> ToolsOf(const BodyFields& body, const ToolForm& form) {
  const Json* given = body.Find("tools");
  if (given == nullptr) return nullptr;
  Json tools;
  RETURN_IF_ERROR(
      ForEach(*given, "tools", [&](const Json& json, const std::string& path) -> absl::Status {
        ASSIGN_OR_RETURN(Json tool, FunctionTool(json, path, form));
        tools.push_back(std::move(tool));
        return absl::OkStatus();
      }));
  return tools;
}

}  // namespace tandem::openai
