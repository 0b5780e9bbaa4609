#include "model/tokenizer/matcher.h"

#include <utility>

#include "base/status.h"
#include "model/tokenizer/unicode.h"

namespace tandem {
namespace {

// Bounds the result of replacements that are longer than the text they replace.
constexpr size_t kMaxGrownBytes = size_t{64} << 20;

void FindString(std::string_view wanted, std::string_view text, std::vector<MatchPart>& parts) {
  size_t covered = 0;
  while (covered < text.size()) {
    const size_t found = text.find(wanted, covered);
    if (found == std::string_view::npos) break;
    if (covered < found) parts.push_back({covered, found, false});
    covered = found + wanted.size();
    parts.push_back({found, covered, true});
  }
  if (covered < text.size()) parts.push_back({covered, text.size(), false});
}

void FindCharacters(Matcher::CharacterClass in_class, std::string_view text,
                    std::vector<MatchPart>& parts) {
  size_t covered = 0;
  size_t at = 0;
  while (at < text.size()) {
    const Character c = FirstCharacter(text.substr(at));
    if (in_class(c.code_point)) {
      if (covered < at) parts.push_back({covered, at, false});
      covered = at + c.length;
      parts.push_back({at, covered, true});
    }
    at += c.length;
  }
  if (covered < text.size()) parts.push_back({covered, text.size(), false});
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Matcher>> Matcher::FromJson(const JsonFields& fields) {
  RETURN_IF_ERROR(fields.RefuseOthers({"Regex", "String"}));
  if (fields.Find("Regex") != nullptr) {
    ASSIGN_OR_RETURN(const std::string pattern, fields.String("Regex"));
    absl::StatusOr<std::shared_ptr<const Matcher>> matcher = ForRegex(pattern);
    if (!matcher.ok()) return Annotate(matcher.status(), fields.PathOf("Regex"));
    return matcher;
  }
  ASSIGN_OR_RETURN(std::string text, fields.String("String"));
  if (text.empty()) return Unimplemented("{}: an empty string", fields.PathOf("String"));
  return ForString(std::move(text));
}

absl::StatusOr<std::shared_ptr<const Matcher>> Matcher::ForRegex(std::string_view pattern) {
  ASSIGN_OR_RETURN(std::unique_ptr<const Regex> regex, Regex::Compile(pattern));
  return std::shared_ptr<const Matcher>(new Matcher(std::move(regex)));
}

std::shared_ptr<const Matcher> Matcher::ForString(std::string text) {
  return std::shared_ptr<const Matcher>(new Matcher(std::move(text)));
}

std::shared_ptr<const Matcher> Matcher::ForCharacters(CharacterClass in_class) {
  return std::shared_ptr<const Matcher>(new Matcher(in_class));
}

std::optional<size_t> Matcher::MatchBytes() const {
  const std::string* const fixed = std::get_if<std::string>(&target_);
  if (fixed == nullptr) return std::nullopt;
  return fixed->size();
}

absl::Status Matcher::FindAll(std::string_view text, std::vector<MatchPart>& parts) const {
  if (const auto* regex = std::get_if<std::unique_ptr<const Regex>>(&target_)) {
    return (*regex)->FindAll(text, parts);
  }
  if (const auto* wanted = std::get_if<std::string>(&target_)) {
    FindString(*wanted, text, parts);
  } else {
    FindCharacters(std::get<CharacterClass>(target_), text, parts);
  }
  return absl::OkStatus();
}

absl::StatusOr<Replaced> ReplaceMatches(const Matcher& matcher, std::string_view text,
                                        std::string_view content) {
  std::vector<MatchPart> parts;
  RETURN_IF_ERROR(matcher.FindAll(text, parts));
  std::string out;
  out.reserve(text.size());
  for (const MatchPart& part : parts) {
    out.append(part.matched ? content : text.substr(part.begin, part.end - part.begin));
    if (out.size() > kMaxGrownBytes && out.size() > text.size()) {
      return ResourceExhausted("a tokenizer replacement grew the text beyond {} bytes",
                               kMaxGrownBytes);
    }
  }
  const bool lost_start =
      content.empty() && !parts.empty() && parts.front().matched && parts.front().end > 0;
  return Replaced{std::move(out), lost_start};
}

}  // namespace tandem
