#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/print.h"

namespace tandem::jinja {
namespace {

// Writes values as JSON. If any text in the value came from the input, all of the JSON did.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Machine& machine) : style_(style), machine_(machine) {}

  absl::Status Write(const Value& value, int level) {
    RETURN_IF_ERROR(machine_.Spend());
    // How much may be written without being paid for. Separators and indents cost more than their
    // values, where a template chose long ones.
    constexpr size_t kMaxUnpaid = 4096;
    if (out_.size() - paid_ > kMaxUnpaid) RETURN_IF_ERROR(Pay());
    if (value.is_none()) {
      out_ += "null";
    } else if (const bool* boolean = value.boolean()) {
      out_ += *boolean ? "true" : "false";
    } else if (const auto integer = value.integer()) {
      out_ += fmt::format("{}", *integer);
    } else if (const double* real = value.real()) {
      WriteReal(*real);
    } else if (const Text* text = value.text()) {
      return WriteText(*text);
    } else if (const Dict* dict = value.dict()) {
      return WriteDict(*dict, level);
    } else if (const List* list = value.list(); list != nullptr && IsRow(*list)) {
      return WriteList(*list, level);
    } else {
      return InvalidArgument("an object of type {} has no form in JSON", value.type());
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Text> Finish() {
    RETURN_IF_ERROR(Pay());
    Text text(std::move(out_));
    text.Mark(from_input_);
    return text;
  }

 private:
  // Pays for the bytes that were written since the last payment.
  absl::Status Pay() {
    return machine_.SpendBytes(out_.size() - std::exchange(paid_, out_.size()));
  }

  static bool IsRow(const List& list) {
    return list.kind == List::Kind::kList || list.kind == List::Kind::kTuple;
  }

  void WriteReal(double value) {
    if (std::isnan(value)) {
      out_ += "NaN";
    } else if (std::isinf(value)) {
      out_ += value > 0 ? "Infinity" : "-Infinity";
    } else {
      out_ += FormatReal(value);
    }
  }

  absl::Status WriteText(const Text& text) {
    RETURN_IF_ERROR(machine_.SpendBytes(text.size()));
    from_input_ = from_input_ || text.has_input();
    const std::string_view bytes = text.view();
    out_ += '"';
    for (size_t at = 0; at < bytes.size();) {
      const size_t begin = at;
      while (at < bytes.size() && IsWrittenAsItIs(bytes[at])) ++at;
      out_ += bytes.substr(begin, at - begin);
      if (at == bytes.size()) break;
      const size_t other = at;
      const int32_t c = NextCharacter(bytes, at);
      WriteCharacter(c, bytes.substr(other, at - other));
    }
    out_ += '"';
    return absl::OkStatus();
  }

  // Whether a character is written without an escape. Most are, and they are copied in runs,
  // because decoding each takes several times as long.
  static bool IsWrittenAsItIs(char c) { return c >= 0x20 && c <= 0x7E && c != '"' && c != '\\'; }

  void WriteCharacter(int32_t c, std::string_view bytes) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
    constexpr std::string_view kLetters = "\"\\nrtbf";
    const size_t known = c < 128 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[known];
    } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E && c < 0x10000)) {
      out_ += fmt::format("\\u{:04x}", c);
    } else if (style_.ensure_ascii && c >= 0x10000) {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((c - 0x10000) >> 10),
                          0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out_ += bytes;
    }
  }

  void NewLine(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  absl::Status WriteList(const List& list, int level) {
    if (list.items.empty()) {
      out_ += "[]";
      return absl::OkStatus();
    }
    out_ += '[';
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      NewLine(level + 1);
      RETURN_IF_ERROR(Write(list.items[i], level + 1));
    }
    NewLine(level);
    out_ += ']';
    return absl::OkStatus();
  }

  absl::StatusOr<Text> KeyText(const Value& key) {
    if (const Text* text = key.text()) return *text;
    if (key.is_none()) return Text("null");
    if (const bool* boolean = key.boolean()) return Text(*boolean ? "true" : "false");
    return Str(key, machine_);
  }

  absl::Status WriteDict(const Dict& dict, int level) {
    if (dict.entries().empty()) {
      out_ += "{}";
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(machine_.Spend(dict.entries().size()));
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      for (const Dict::Entry* entry : entries) {
        if (entry->key.text() == nullptr) {
          return InvalidArgument("sort_keys wants keys that are strings");
        }
      }
      std::stable_sort(entries.begin(), entries.end(),
                       [](const Dict::Entry* a, const Dict::Entry* b) {
                         return a->key.text()->bytes() < b->key.text()->bytes();
                       });
    }
    out_ += '{';
    bool first = true;
    for (const Dict::Entry* entry : entries) {
      if (!std::exchange(first, false)) out_ += style_.item_separator;
      NewLine(level + 1);
      ASSIGN_OR_RETURN(const Text key, KeyText(entry->key));
      RETURN_IF_ERROR(WriteText(key));
      out_ += style_.key_separator;
      RETURN_IF_ERROR(Write(entry->value, level + 1));
    }
    NewLine(level);
    out_ += '}';
    return absl::OkStatus();
  }

  const JsonStyle& style_;
  Machine& machine_;
  std::string out_;
  size_t paid_ = 0;  // bytes of out_ that are paid for
  bool from_input_ = false;
};

}  // namespace

absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Machine& machine) {
  JsonWriter writer(style, machine);
  RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Finish();
}

}  // namespace tandem::jinja
