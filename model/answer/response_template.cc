// Reads the declarative form of transformers (response_template): fields of a message, each with
// what opens and closes it and how its text is read. Only fields that marks can express are
// supported.
#include <algorithm>
#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "model/answer/answer_markup.h"
#include "model/answer/mark.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using Form = CallMarkup::Form;

constexpr size_t kMaxMarkBytes = 1024;

const Json* Find(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string TextOf(const Json* json, std::string_view otherwise = "") {
  return json != nullptr && json->is_string() ? json->get<std::string>() : std::string(otherwise);
}

absl::Status CheckKeys(const Json& object, const std::string& path,
                       const std::vector<std::string_view>& known) {
  if (!object.is_object()) return InvalidArgument("{} must be an object", path);
  for (const auto& [key, value] : object.items()) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      return Unimplemented("{}.{} is not supported", path, key.substr(0, 80));
    }
  }
  return absl::OkStatus();
}

// A part of a regular expression: a fixed text, in which a space stands for any white space, or a
// group.
struct PatternPart {
  std::string text;
  std::string group;
};

// Reads a subset of regular expressions: ordinary characters, escaped ones, \n, \s* and the like,
// and groups (?P<NAME>...) of \w, \S, '.' and simple classes, which end where the next text begins.
class PatternReader {
 public:
  PatternReader(std::string_view pattern, std::string path)
      : pattern_(pattern), path_(std::move(path)) {}

  absl::StatusOr<std::vector<PatternPart>> Read() {
    std::vector<PatternPart> parts;
    std::string text;
    while (at_ < pattern_.size()) {
      if (pattern_.substr(at_).starts_with("(?P<")) {
        parts.push_back({std::exchange(text, ""), ""});
        ASSIGN_OR_RETURN(std::string name, ReadGroup());
        parts.push_back({"", std::move(name)});
        continue;
      }
      RETURN_IF_ERROR(ReadCharacter(text));
    }
    parts.push_back({text, ""});
    return parts;
  }

 private:
  absl::Status Refuse() const {
    return Unimplemented(
        "{}: the regular expression {} is not supported from character {} on; texts, white space "
        "and "
        "named groups are",
        path_, JsonString(pattern_.substr(0, 200)), at_);
  }

  bool Skip(std::string_view text) {
    if (!pattern_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }

  absl::Status ReadCharacter(std::string& text) {
    const char c = pattern_[at_];
    if (c == '\\') {
      if (at_ + 1 == pattern_.size()) return Refuse();
      const char escaped = pattern_[at_ + 1];
      if (escaped == 's' || escaped == 'n' || escaped == 't') {
        at_ += 2;
        if (at_ < pattern_.size() && std::string_view("*+?").find(pattern_[at_]) != kNone) ++at_;
        if (at_ < pattern_.size() && pattern_[at_] == '?') ++at_;
        text += ' ';
        return absl::OkStatus();
      }
      if (std::isalnum(static_cast<unsigned char>(escaped)) != 0) return Refuse();
      text += escaped;
      at_ += 2;
    } else if (std::string_view(".*+?()[]{}^$|").find(c) != kNone) {
      return Refuse();
    } else {
      text += c;
      ++at_;
    }
    // A character that is repeated is not part of a fixed text.
    if (at_ < pattern_.size() && std::string_view("*+?{").find(pattern_[at_]) != kNone) {
      return Refuse();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadGroup() {
    Skip("(?P<");
    const size_t end = pattern_.find('>', at_);
    if (end == kNone) return Refuse();
    std::string name(pattern_.substr(at_, end - at_));
    at_ = end + 1;
    if (pattern_.substr(at_).starts_with("[^")) {
      const size_t close = pattern_.find(']', at_ + 2);
      if (close == kNone) return Refuse();
      at_ = close + 1;
    } else if (!Skip("\\w") && !Skip("\\S") && !Skip(".") && !Skip("[\\w.-]") && !Skip("[\\w-]")) {
      return Refuse();
    }
    if (!Skip("+") && !Skip("*")) return Refuse();
    Skip("?");
    if (!Skip(")")) return Refuse();
    return name;
  }

  static constexpr size_t kNone = std::string_view::npos;

  const std::string_view pattern_;
  const std::string path_;
  size_t at_ = 0;
};

// Reads what opens or closes a field (`name` is "open" or "close"), as a text or a pattern; empty
// where the field has neither.
absl::StatusOr<std::vector<PatternPart>> ReadDelimiter(const Json& field, const std::string& path,
                                                       const std::string& name) {
  const Json* text = Find(field, name.c_str());
  const Json* pattern = Find(field, (name + "_pattern").c_str());
  if (text != nullptr && pattern != nullptr) {
    return InvalidArgument("{} has both {} and {}_pattern", path, name, name);
  }
  if (pattern != nullptr) {
    if (!pattern->is_string() || pattern->get_ref<const std::string&>().size() > kMaxMarkBytes) {
      return InvalidArgument("{}.{}_pattern must be a string of at most {} bytes", path, name,
                             kMaxMarkBytes);
    }
    return PatternReader(pattern->get_ref<const std::string&>(), path + "." + name + "_pattern")
        .Read();
  }
  // A list names alternative texts. The end of the answer ends every field, so "eos" is left out.
  std::vector<std::string> texts;
  if (text != nullptr && text->is_string()) texts.push_back(text->get<std::string>());
  if (text != nullptr && text->is_array()) {
    for (const Json& item : *text) texts.push_back(TextOf(&item));
  }
  if (name == "close") std::erase(texts, "eos");
  if (texts.empty()) return std::vector<PatternPart>();
  if (texts.size() > 1 || texts[0].empty() || texts[0].size() > kMaxMarkBytes) {
    return Unimplemented("{}.{} must be one text of 1 to {} bytes", path, name, kMaxMarkBytes);
  }
  return std::vector<PatternPart>{{texts[0], ""}};
}

absl::StatusOr<std::string> ReadText(const Json& field, const std::string& path,
                                     const std::string& name) {
  ASSIGN_OR_RETURN(const std::vector<PatternPart> parts, ReadDelimiter(field, path, name));
  if (parts.empty()) return std::string();
  if (parts.size() > 1) return Unimplemented("{}.{}_pattern has a group", path, name);
  return std::string(Trimmed(parts[0].text));
}

absl::StatusOr<ReasoningMarkup> ReadThinking(const Json& field, const std::string& path) {
  ReasoningMarkup markup;
  ASSIGN_OR_RETURN(markup.open, ReadText(field, path, "open"));
  ASSIGN_OR_RETURN(markup.close, ReadText(field, path, "close"));
  if (markup.open.empty() || markup.close.empty()) {
    return Unimplemented("{} needs texts that open and close it", path);
  }
  return markup;
}

// Checks where the transform takes the parts of a call from: "{content}", a field of it, or a
// group.
absl::Status CheckTransform(const Json& field, const std::string& path, Form form) {
  const Json* transform = Find(field, "transform");
  if (transform == nullptr) return absl::OkStatus();
  const Json* function = transform->is_object() ? Find(*transform, "function") : nullptr;
  if (function != nullptr && *function == "{content}" && form == Form::kJson) {
    return absl::OkStatus();
  }
  if (function != nullptr && function->is_object()) {
    const std::string name = TextOf(Find(*function, "name"));
    const std::string arguments = TextOf(Find(*function, "arguments"));
    const bool is_known =
        form == Form::kJson
            ? (name == "{name}" || name == "{tool_name}" || name == "{content.name}") &&
                  (arguments == "{arguments}" || arguments == "{parameters}" ||
                   arguments == "{content.arguments}" || arguments == "{content.parameters}")
            : name == "{name}" && arguments == "{content}";
    if (is_known) return absl::OkStatus();
  }
  return Unimplemented("{}.transform makes something else of a call than its name and arguments",
                       path);
}

absl::Status ReadTags(const Json& field, const std::string& path, CallMarkup& markup) {
  const Json* args = Find(field, "content_args");
  const std::string at = path + ".content_args";
  if (args == nullptr) return InvalidArgument("{} is missing", at);
  RETURN_IF_ERROR(CheckKeys(*args, at, {"tag_pattern", "value_parser"}));
  const std::string pattern = TextOf(Find(*args, "tag_pattern"));
  ASSIGN_OR_RETURN(const std::vector<PatternPart> parts,
                   PatternReader(pattern, at + ".tag_pattern").Read());
  const bool is_pair = parts.size() == 5 && parts[1].group == "key" && parts[3].group == "value";
  if (!is_pair) return Unimplemented("{}.tag_pattern must have the groups key and value", at);
  markup.key_open = Trimmed(parts[0].text);
  markup.key_close = Trimmed(parts[2].text);
  markup.value_close = Trimmed(parts[4].text);
  if (markup.key_open.empty() || markup.key_close.empty() || markup.value_close.empty()) {
    return Unimplemented("{}.tag_pattern must have texts around key and value", at);
  }
  return absl::OkStatus();
}

absl::StatusOr<CallMarkup> ReadCalls(const Json& field, const std::string& path) {
  CallMarkup markup;
  ASSIGN_OR_RETURN(const std::vector<PatternPart> open, ReadDelimiter(field, path, "open"));
  ASSIGN_OR_RETURN(const std::string close, ReadText(field, path, "close"));
  const std::string content = TextOf(Find(field, "content"), "text");
  const bool is_named = open.size() == 3 && open[1].group == "name";
  if (open.empty() || (open.size() > 1 && !is_named)) {
    return Unimplemented("{} needs a text that opens it, with at most the group name in it", path);
  }
  markup.call_open = Trimmed(open[0].text);
  if (markup.call_open.empty()) return Unimplemented("{} must open with a text", path);
  if (is_named) markup.name_close = Trimmed(open[2].text);
  if (content == "xml-inline" && is_named) {
    markup.form = Form::kTagged;
    RETURN_IF_ERROR(ReadTags(field, path, markup));
  } else if (content == "json") {
    markup.form = is_named ? Form::kNamed : Form::kJson;
    if (Find(field, "content_args") != nullptr && !Find(field, "content_args")->empty()) {
      return Unimplemented("{}.content_args of JSON are not supported", path);
    }
  } else {
    return Unimplemented("{}.content={} is not supported", path, content.substr(0, 40));
  }
  RETURN_IF_ERROR(CheckTransform(field, path, markup.form));
  const Json* each = Find(field, "transform_each");
  if (each == nullptr || *each != true) {
    markup.call_close = close;
    return markup;
  }
  if (markup.form != Form::kJson) return Unimplemented("{}.transform_each needs JSON", path);
  markup.section_open = std::exchange(markup.call_open, "") + " [";
  markup.separator = ",";
  markup.section_close = close.empty() ? "]" : "] " + close;
  return markup;
}

}  // namespace

absl::StatusOr<AnswerMarkup> MarkupOfResponseTemplate(const nlohmann::ordered_json& json) {
  RETURN_IF_ERROR(
      CheckKeys(json, "response_template",
                {"version", "defaults", "start_anchor", "start_anchor_pattern", "fields"}));
  const Json* version = Find(json, "version");
  if (version != nullptr && *version != 1) {
    return Unimplemented("response_template.version must be 1");
  }
  const Json* fields = Find(json, "fields");
  if (fields == nullptr || !fields->is_object()) {
    return InvalidArgument("response_template.fields must be an object");
  }
  AnswerMarkup markup;
  for (const auto& [name, field] : fields->items()) {
    const std::string path = "response_template.fields." + name.substr(0, 80);
    RETURN_IF_ERROR(
        CheckKeys(field, path,
                  {"open", "open_pattern", "close", "close_pattern", "content", "content_args",
                   "repeats", "optional", "transform", "transform_each"}));
    if (name == "thinking" || name == "reasoning_content" || name == "reasoning") {
      ASSIGN_OR_RETURN(markup.reasoning, ReadThinking(field, path));
    } else if (name == "tool_calls") {
      ASSIGN_OR_RETURN(markup.calls, ReadCalls(field, path));
    } else if (name != "content") {
      return Unimplemented("{} is none of content, thinking and tool_calls", path);
    } else if (Find(field, "open") != nullptr || Find(field, "open_pattern") != nullptr) {
      return Unimplemented("{} must be what the other fields leave, without a text that opens it",
                           path);
    }
  }
  return markup;
}

}  // namespace tandem
