#include <fstream>
#include <optional>

#include "base/json.h"
#include "base/status.h"
#include "model/chat/chat_template.h"
#include "model/chat/jinja/lexer.h"

namespace tandem {
namespace {

using ConfigJson = nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{64} << 20;

// Reads a file. Nothing when there is no such file.
absl::StatusOr<std::optional<std::string>> ReadFile(const std::string& path, size_t max_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::optional<std::string>();
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (size < 0) return InvalidArgument("{}: cannot be read", path);
  if (static_cast<uint64_t>(size) > max_bytes) {
    return InvalidArgument("{}: {} bytes; at most {} are read", path, size, max_bytes);
  }
  std::string text(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(text.data(), size)) return InvalidArgument("{}: cannot be read", path);
  return std::optional<std::string>(std::move(text));
}

// The text of a special token, which is written "<s>" or {"content": "<s>", ...}.
std::optional<std::string> TokenText(const ConfigJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return std::nullopt;
  const auto content = value.find("content");
  if (content == value.end() || !content->is_string()) return std::nullopt;
  return content->get<std::string>();
}

void ReadSpecialTokens(const ConfigJson& config, ChatTemplateSource& source) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
                           "cls_token", "mask_token"}) {
    const auto at = config.find(name);
    if (at == config.end()) continue;
    if (auto text = TokenText(*at)) source.special_tokens.push_back({name, *std::move(text)});
  }
  const auto extra = config.find("extra_special_tokens");
  if (extra == config.end() || !extra->is_object()) return;
  for (const auto& [name, value] : extra->items()) {
    if (auto text = TokenText(value)) source.special_tokens.push_back({name, *std::move(text)});
  }
}

// Reads one template, or several of the form [{"name": "default", "template": "..."}, ...].
absl::Status ReadTemplates(const ConfigJson& value, ChatTemplateSource& source) {
  if (value.is_string()) {
    source.templates.push_back({"default", value.get<std::string>()});
    return absl::OkStatus();
  }
  if (!value.is_array()) {
    return InvalidArgument("chat_template: expected a string or a list of named templates");
  }
  for (const ConfigJson& named : value) {
    const bool is_named = named.is_object() && named.contains("name") &&
                          named["name"].is_string() && named.contains("template") &&
                          named["template"].is_string();
    if (!is_named) {
      return InvalidArgument("chat_template: expected {{\"name\": ..., \"template\": ...}}");
    }
    source.templates.push_back(
        {named["name"].get<std::string>(), named["template"].get<std::string>()});
  }
  return absl::OkStatus();
}

absl::Status ReadConfig(const std::string& path, ChatTemplateSource& source) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadFile(path, kMaxConfigBytes));
  if (!text) return absl::OkStatus();
  const ConfigJson config = ParseJson(*text);
  if (!config.is_object()) return InvalidArgument("{}: not a JSON object", path);
  ReadSpecialTokens(config, source);
  const auto value = config.find("chat_template");
  if (!source.templates.empty() || value == config.end() || value->is_null()) {
    return absl::OkStatus();
  }
  const absl::Status status = ReadTemplates(*value, source);
  return status.ok() ? status : Annotate(status, path);
}

}  // namespace

absl::StatusOr<ChatTemplateSource> ReadChatTemplate(const std::string& model_dir,
                                                    const std::string& override_file) {
  ChatTemplateSource source;
  const std::string own = model_dir + "/chat_template.jinja";
  const std::string& path = override_file.empty() ? own : override_file;
  ASSIGN_OR_RETURN(std::optional<std::string> text, ReadFile(path, jinja::kMaxTemplateBytes));
  if (!text && !override_file.empty()) return NotFound("{}: cannot be opened", override_file);
  if (text) source.templates.push_back({"default", *std::move(text)});
  RETURN_IF_ERROR(ReadConfig(model_dir + "/tokenizer_config.json", source));
  if (source.templates.empty()) {
    return NotFound(
        "{}: no chat template: there is neither chat_template.jinja nor a field chat_template in "
        "tokenizer_config.json; give a file with a template",
        model_dir);
  }
  return source;
}

}  // namespace tandem
