#include "server/eval/eval_texts.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/json.h"
#include "base/status.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

constexpr uintmax_t kMaxFileBytes = uintmax_t{256} << 20;

// Reads a file whole. Its size is checked before memory is allocated for it.
absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::error_code error;
  const uintmax_t bytes = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return NotFound("{} cannot be read: name a file of text", path);
  if (bytes > kMaxFileBytes) {
    return InvalidArgument("{} has {} bytes; at most {} are taken", path, bytes, kMaxFileBytes);
  }
  std::string text(bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

absl::StatusOr<EvalText> ParseEvalLine(std::string_view line) {
  const nlohmann::json object = ParseJson(line);
  if (!object.is_object()) return InvalidArgument("it is no JSON object");
  const auto text = object.find("text");
  if (text == object.end() || !text->is_string()) return InvalidArgument("it has no \"text\"");
  EvalText parsed{.name = "", .text = text->get<std::string>()};
  const auto name = object.find("name");
  if (name == object.end()) return parsed;
  if (!name->is_string()) return InvalidArgument("its \"name\" is no text");
  parsed.name = name->get<std::string>();
  return parsed;
}

}  // namespace

absl::StatusOr<std::vector<EvalText>> ParseEvalLines(std::string_view lines,
                                                     const std::string& file) {
  std::vector<EvalText> texts;
  for (size_t number = 1; !lines.empty(); ++number) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(line.size() + 1, lines.size()));
    if (absl::StripAsciiWhitespace({line.data(), line.size()}).empty()) continue;
    absl::StatusOr<EvalText> text = ParseEvalLine(line);
    if (!text.ok()) return Annotate(text.status(), fmt::format("{}:{}", file, number));
    if (text->name.empty()) text->name = fmt::format("{}:{}", file, number);
    texts.push_back(*std::move(text));
  }
  return texts;
}

absl::StatusOr<std::vector<EvalText>> ReadEvalTexts(const std::string& path) {
  ASSIGN_OR_RETURN(std::string text, ReadText(path));
  const std::string file = std::filesystem::path(path).filename();
  if (path.ends_with(".jsonl")) return ParseEvalLines(text, file);
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return std::vector<EvalText>{{file, std::move(text)}};
  return InvalidArgument("{} is not UTF-8: byte {} begins no character", path, valid);
}

}  // namespace tandem
