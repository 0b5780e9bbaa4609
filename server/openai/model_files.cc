#include "server/openai/model_files.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "fmt/ranges.h"

namespace tandem::openai {
namespace {

constexpr size_t kMaxConfigBytes = 16 << 20;

// The contents of a file; empty where it does not exist or is too large.
std::string ReadSmallFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = static_cast<int64_t>(file.tellg());
  if (size < 0 || static_cast<size_t>(size) > kMaxConfigBytes) return "";
  file.seekg(0);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The text of a special token, which the configuration gives as a string or as an object with it.
Json TokenText(const Json& token) {
  if (token.is_string()) return token;
  if (!token.is_object()) return nullptr;
  const auto content = token.find("content");
  return content != token.end() && content->is_string() ? *content : Json(nullptr);
}

AnswerMarkup MarkupOf(const ChatTemplate& chat, std::string_view config,
                      const ParserNames& parsers) {
  const absl::StatusOr<Json> fields = ParseJsonBody(config);
  Json response_template;
  if (fields.ok() && fields->is_object() && fields->contains("response_template")) {
    response_template = (*fields)["response_template"];
  }
  absl::StatusOr<AnswerMarkup> markup = ChooseMarkup(&chat, response_template, parsers);
  if (markup.ok()) {
    LogInfo("answers to chats are searched for marks=[{}] parser={} reasoning_parser={}",
            fmt::join(markup->Marks(), " "), parsers.tools, parsers.reasoning);
    return *std::move(markup);
  }
  LogWarn("answers are not searched: {}", std::string(markup.status().message()));
  return {};
}

}  // namespace

Json TokenizerInfo(std::string_view config) {
  const absl::StatusOr<Json> parsed = ParseJsonBody(config);
  const Json fields = parsed.ok() && parsed->is_object() ? *parsed : Json::object();
  Json info = Json::object();
  for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
    const auto token = fields.find(name);
    info[name] = token == fields.end() ? Json(nullptr) : TokenText(*token);
  }
  for (const char* name : {"tokenizer_class", "model_max_length", "chat_template", "add_bos_token",
                           "add_eos_token", "clean_up_tokenization_spaces"}) {
    const auto field = fields.find(name);
    if (field != fields.end()) info[name] = *field;
  }
  return info;
}

ModelFiles LoadModelFiles(const std::string& directory, const ParserNames& parsers) {
  ModelFiles files;
  const std::string config = ReadSmallFile(directory + "/tokenizer_config.json");
  files.tokenizer_info = TokenizerInfo(config);
  if (directory.empty()) {
    files.no_chat = FailedPrecondition("this model has no files, and so no chat template");
    return files;
  }
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat = LoadChatTemplate(directory);
  if (chat.ok()) {
    files.chat = *std::move(chat);
    files.markup = MarkupOf(*files.chat, config, parsers);
    return files;
  }
  LogWarn("no chat completions: {}", std::string(chat.status().message()));
  files.no_chat =
      FailedPrecondition("this model answers no chats: {}", std::string(chat.status().message()));
  return files;
}

}  // namespace tandem::openai
