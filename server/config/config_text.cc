#include "server/config/config_text.h"

#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace tandem {
namespace {

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r'; }

// Reads the values of one entry, which may continue over several lines of the file.
class ValueReader {
 public:
  // `next_line`: the index of the line after the entry's first line, where a list may continue; it
  // is moved behind the lines that were read.
  ValueReader(std::string_view text, const std::vector<std::string_view>& lines, size_t& next_line)
      : rest_(text),
        lines_(lines),
        next_line_(next_line),
        first_line_(static_cast<int>(next_line)) {}

  absl::StatusOr<std::vector<std::string>> ReadAll() {
    SkipSpace();
    if (AtEnd()) return Wrong("there is no value behind =: give one, \"\" for an empty text");
    std::vector<std::string> values;
    if (rest_.front() == '[') {
      ASSIGN_OR_RETURN(values, ReadList());
    } else {
      ASSIGN_OR_RETURN(std::string value, ReadOne(""));
      values.push_back(std::move(value));
    }
    SkipSpace();
    if (AtEnd()) return values;
    return Wrong("{} stands behind the value: quote a text that has spaces or quotes", rest_);
  }

 private:
  template <typename... Args>
  absl::Status Wrong(fmt::format_string<Args...> text, Args&&... args) const {
    return InvalidArgument("line {}: {}", first_line_,
                           fmt::format(text, std::forward<Args>(args)...));
  }

  void SkipSpace() {
    while (!rest_.empty() && IsSpace(rest_.front())) rest_.remove_prefix(1);
  }
  // Whether the line has no more values: it has ended, or a comment begins. Only meaningful between
  // values.
  bool AtEnd() const { return rest_.empty() || rest_.front() == '#'; }

  absl::StatusOr<std::vector<std::string>> ReadList() {
    std::vector<std::string> values;
    rest_.remove_prefix(1);
    for (bool needs_comma = false;;) {
      SkipSpace();
      if (AtEnd()) {
        if (next_line_ == lines_.size()) return Wrong("the list that begins here has no ]");
        rest_ = lines_[next_line_++];
        continue;
      }
      const char first = rest_.front();
      if (first == ']' || first == ',') rest_.remove_prefix(1);
      if (first == ']' && values.empty()) return Wrong("the list is empty: leave the key out");
      if (first == ']') return values;
      if ((first == ',') != needs_comma) {
        return Wrong("values of a list have one comma between them, as [\"a\", \"b\"]");
      }
      needs_comma = !needs_comma;
      if (first == ',') continue;
      ASSIGN_OR_RETURN(std::string value, ReadOne(",]"));
      values.push_back(std::move(value));
    }
  }

  // Reads one value: a text in quotes, or one that ends at a comment, at one of `ends`, or with the
  // line.
  absl::StatusOr<std::string> ReadOne(std::string_view ends) {
    if (rest_.front() == '"' || rest_.front() == '\'') return ReadQuoted(rest_.front());
    size_t length = 0;
    while (length < rest_.size() && ends.find(rest_[length]) == std::string_view::npos &&
           !(rest_[length] == '#' && IsSpace(rest_[length - 1]))) {
      ++length;
    }
    const std::string value(absl::StripAsciiWhitespace(absl::string_view(rest_.data(), length)));
    rest_.remove_prefix(length);
    return value;
  }

  // Reads a text in quotes. In double quotes \" and \\ stand for " and \; in single quotes every
  // character stands for itself.
  absl::StatusOr<std::string> ReadQuoted(char quote) {
    std::string value;
    for (size_t i = 1; i < rest_.size(); ++i) {
      if (rest_[i] == quote) {
        rest_.remove_prefix(i + 1);
        return value;
      }
      if (rest_[i] == '\\' && quote == '"') {
        if (i + 1 == rest_.size() || (rest_[i + 1] != '"' && rest_[i + 1] != '\\')) {
          return Wrong("\\ stands before \" or \\ in double quotes: use single quotes, or \\\\");
        }
        ++i;
      }
      value += rest_[i];
    }
    return Wrong("the text that begins with {} has no quote at its end", quote);
  }

  std::string_view rest_;
  const std::vector<std::string_view>& lines_;
  size_t& next_line_;
  const int first_line_;
};

std::string_view Trimmed(std::string_view text) {
  const absl::string_view inner =
      absl::StripAsciiWhitespace(absl::string_view(text.data(), text.size()));
  return {inner.data(), inner.size()};
}

std::string_view WithoutComment(std::string_view line) {
  return Trimmed(line.substr(0, line.find('#')));
}

// The name in a line "[name]". Quotes around parts of the name are neither needed nor accepted.
absl::StatusOr<std::string> SectionName(std::string_view line, int number) {
  const std::string_view text = WithoutComment(line);
  if (text.starts_with("[[")) {
    return InvalidArgument("line {}: {} is a list of tables, which flags do not have: write [{}]",
                           number, text, Trimmed(text.substr(2, text.find(']') - 2)));
  }
  if (!text.ends_with(']') || text.size() < 3) {
    return InvalidArgument("line {}: {} is no section: write it as [name]", number, text);
  }
  return std::string(Trimmed(text.substr(1, text.size() - 2)));
}

absl::Status AddSection(std::string name, int line, std::vector<ConfigSection>& sections) {
  for (const ConfigSection& section : sections) {
    if (section.name != name) continue;
    return InvalidArgument("line {}: [{}] is there already, on line {}: put all of it there", line,
                           name, section.line);
  }
  sections.push_back({.name = std::move(name), .line = line, .entries = {}});
  return absl::OkStatus();
}

absl::Status AddEntry(ConfigEntry entry, ConfigSection& section) {
  for (const ConfigEntry& other : section.entries) {
    if (other.key != entry.key) continue;
    return InvalidArgument(
        "line {}: [{}] has {} already, on line {}: keep one of them; a flag that may be repeated "
        "takes a list, as {} = [\"a\", \"b\"]",
        entry.line, section.name, entry.key, other.line, entry.key);
  }
  section.entries.push_back(std::move(entry));
  return absl::OkStatus();
}

// Reads the entry that begins on `line`, which precedes lines[next_line].
absl::StatusOr<ConfigEntry> ReadEntry(std::string_view line,
                                      const std::vector<std::string_view>& lines,
                                      size_t& next_line) {
  const auto number = static_cast<int>(next_line);
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos || equals > line.find('#')) {
    return ConfigEntry{
        .key = std::string(WithoutComment(line)), .values = {"true"}, .line = number};
  }
  ConfigEntry entry = {
      .key = std::string(Trimmed(line.substr(0, equals))), .values = {}, .line = number};
  if (entry.key.empty()) return InvalidArgument("line {}: there is no key before =", number);
  ASSIGN_OR_RETURN(entry.values, ValueReader(line.substr(equals + 1), lines, next_line).ReadAll());
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<ConfigSection>> ParseConfigText(std::string_view text) {
  if (text.size() > kMostConfigBytes) {
    return InvalidArgument("the file has {} bytes, and may have {}", text.size(), kMostConfigBytes);
  }
  std::vector<std::string_view> lines;
  for (const absl::string_view line :
       absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    lines.emplace_back(line.data(), line.size());
  }
  std::vector<ConfigSection> sections;
  for (size_t next_line = 0; next_line < lines.size();) {
    const std::string_view line = Trimmed(lines[next_line++]);
    const auto number = static_cast<int>(next_line);
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[') {
      ASSIGN_OR_RETURN(std::string name, SectionName(line, number));
      RETURN_IF_ERROR(AddSection(std::move(name), number, sections));
      continue;
    }
    ASSIGN_OR_RETURN(ConfigEntry entry, ReadEntry(line, lines, next_line));
    if (sections.empty()) {
      return InvalidArgument(
          "line {}: {} stands before the first section: put it below [shared], [router], [worker] "
          "or "
          "another one",
          number, entry.key);
    }
    RETURN_IF_ERROR(AddEntry(std::move(entry), sections.back()));
  }
  return sections;
}

}  // namespace tandem
