#include "model/chat/jinja/print.h"

#include <charconv>
#include <cmath>

#include "base/status.h"
#include "model/chat/jinja/characters.h"

namespace tandem::jinja {
namespace {

// Writes values as Python source. If any text in them came from the input, all of it did.
class ReprWriter {
 public:
  explicit ReprWriter(Machine& machine) : machine_(machine) {}

  absl::Status Write(const Value& value) {
    RETURN_IF_ERROR(machine_.Spend());
    if (value.is_none()) {
      out_ += "None";
    } else if (value.undefined() != nullptr) {
      out_ += "Undefined";
    } else if (const bool* boolean = value.boolean()) {
      out_ += *boolean ? "True" : "False";
    } else if (const auto integer = value.integer()) {
      out_ += fmt::format("{}", *integer);
    } else if (const double* real = value.real()) {
      out_ += FormatReal(*real);
    } else if (const Text* text = value.text()) {
      return WriteText(*text);
    } else if (const List* list = value.list()) {
      return WriteList(*list);
    } else if (const Dict* dict = value.dict()) {
      return WriteDict(*dict);
    } else {
      return InvalidArgument("a {} cannot be printed", value.type());
    }
    return absl::OkStatus();
  }

  Text Finish() {
    Text text(std::move(out_));
    text.Mark(from_input_);
    return text;
  }

 private:
  absl::Status WriteText(const Text& text) {
    RETURN_IF_ERROR(machine_.SpendBytes(text.size()));
    from_input_ = from_input_ || text.has_input();
    const std::string_view bytes = text.view();
    const bool has_single = bytes.find('\'') != std::string_view::npos;
    const char quote = has_single && bytes.find('"') == std::string_view::npos ? '"' : '\'';
    out_ += quote;
    for (size_t at = 0; at < bytes.size();) {
      const size_t begin = at;
      const int32_t c = NextCharacter(bytes, at);
      WriteCharacter(c, bytes.substr(begin, at - begin), quote);
    }
    out_ += quote;
    return absl::OkStatus();
  }

  void WriteCharacter(int32_t c, std::string_view bytes, char quote) {
    if (c == quote || c == '\\') {
      out_ += '\\';
      out_ += static_cast<char>(c);
    } else if (c == '\n') {
      out_ += "\\n";
    } else if (c == '\r') {
      out_ += "\\r";
    } else if (c == '\t') {
      out_ += "\\t";
    } else if (IsPrintable(c)) {
      out_ += bytes;
    } else if (c < 0x100) {
      out_ += fmt::format("\\x{:02x}", c);
    } else if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", c);
    } else {
      out_ += fmt::format("\\U{:08x}", c);
    }
  }

  absl::Status WriteItems(const List& list, std::string_view open, std::string_view close) {
    out_ += open;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_ += ", ";
      RETURN_IF_ERROR(Write(list.items[i]));
    }
    out_ += close;
    return absl::OkStatus();
  }

  absl::Status WriteList(const List& list) {
    using Kind = List::Kind;
    switch (list.kind) {
      case Kind::kList:
        return WriteItems(list, "[", "]");
      case Kind::kTuple:
        return WriteItems(list, "(", list.items.size() == 1 ? ",)" : ")");
      case Kind::kKeys:
        return WriteItems(list, "dict_keys([", "])");
      case Kind::kValues:
        return WriteItems(list, "dict_values([", "])");
      case Kind::kItems:
        return WriteItems(list, "dict_items([", "])");
      case Kind::kRange:
        out_ += fmt::format("range({}, {}", list.range[0], list.range[1]);
        out_ += list.range[2] == 1 ? ")" : fmt::format(", {})", list.range[2]);
        return absl::OkStatus();
      case Kind::kGenerator:
        break;
    }
    return InvalidArgument("a generator cannot be printed: add |list or |join");
  }

  absl::Status WriteDict(const Dict& dict) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries()) {
      if (!std::exchange(first, false)) out_ += ", ";
      RETURN_IF_ERROR(Write(key));
      out_ += ": ";
      RETURN_IF_ERROR(Write(value));
    }
    out_ += '}';
    return absl::OkStatus();
  }

  Machine& machine_;
  std::string out_;
  bool from_input_ = false;
};

}  // namespace

std::string FormatReal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t mark = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent = text.data() + mark + (text[mark + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, end, exponent);
  const bool negative = text[0] == '-';
  std::string digits;
  for (const char c : text.substr(0, mark)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const std::string sign = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    const std::string fraction = digits.size() > 1 ? "." + digits.substr(1) : "";
    return fmt::format("{}{}{}e{}{:02}", sign, digits[0], fraction, exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

absl::StatusOr<Text> Repr(const Value& value, Machine& machine) {
  ReprWriter writer(machine);
  RETURN_IF_ERROR(writer.Write(value));
  Text text = writer.Finish();
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  return text;
}

absl::StatusOr<Text> Str(const Value& value, Machine& machine) {
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(machine.SpendBytes(text->size()));
    return *text;
  }
  if (value.undefined() != nullptr) return Text();
  return Repr(value, machine);
}

}  // namespace tandem::jinja
