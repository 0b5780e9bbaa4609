#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/methods.h"
#include "model/chat/jinja/operators.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Applies a change that does not tell which bytes come from where: if any of the text came from the
// input, all of the result did.
Result Changed(Machine& machine, const Text& text, std::string (*change)(std::string_view)) {
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  Text changed(change(text.view()));
  changed.Mark(text.has_input());
  return Value(std::move(changed));
}

template <std::string (*kChange)(std::string_view)>
Result ChangeCase(Machine& machine, const Value& self, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("this method", {}, 0, std::move(arguments)).status());
  return Changed(machine, *self.text(), kChange);
}

template <Side kSide>
Result Strip(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("strip", {"chars"}, 0, std::move(arguments)));
  const Text& text = *self.text();
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  Trimmed trimmed;
  if (bound.Get(0).is_none()) {
    trimmed = Trim(text.view(), nullptr, kSide);
  } else {
    ASSIGN_OR_RETURN(const Text chars, bound.String(0, "", machine));
    RETURN_IF_ERROR(machine.SpendBytes(text.size() * chars.size()));
    const std::string_view view = chars.view();
    trimmed = Trim(text.view(), &view, kSide);
  }
  return Value(text.Slice(trimmed.begin, trimmed.end));
}

Result JoinMethod(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("join", {"iterable"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(bound.Get(0), machine));
  std::vector<Text> texts;
  for (const Value& item : items) {
    if (item.text() == nullptr) {
      return InvalidArgument("join() wants strings, not '{}'", item.type());
    }
    RETURN_IF_ERROR(machine.SpendBytes(item.text()->size()));
    texts.push_back(*item.text());
  }
  return JoinTexts(*self.text(), texts, machine);
}

Result FormatMethod(Machine& machine, const Value& self, Arguments arguments) {
  return FormatBraces(*self.text(), arguments, machine);
}

template <bool (*kHas)(int32_t)>
Result All(Machine& machine, const Value& self, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("this method", {}, 0, std::move(arguments)).status());
  RETURN_IF_ERROR(machine.SpendBytes(self.text()->size() * 4));
  const std::string_view text = self.text()->view();
  for (size_t at = 0; at < text.size();) {
    if (!kHas(NextCharacter(text, at))) return Value(false);
  }
  return Value(!text.empty());
}

bool IsAlphaNumeric(int32_t c) { return IsAlpha(c) || IsNumeric(c); }

// Whether the text has characters with case, and all of these have the case of kHas.
template <bool (*kHas)(int32_t)>
Result AllCased(Machine& machine, const Value& self, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("this method", {}, 0, std::move(arguments)).status());
  RETURN_IF_ERROR(machine.SpendBytes(self.text()->size() * 4));
  const std::string_view text = self.text()->view();
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const int32_t c = NextCharacter(text, at);
    if (IsCased(c) && !kHas(c)) return Value(false);
    found = found || IsCased(c);
  }
  return Value(found);
}

// How many characters a text is short of a width, which may be any integer.
int64_t MissingTo(int64_t width, const Text& text) {
  return std::max<int64_t>(width, 0) - static_cast<int64_t>(CountCharacters(text.view()));
}

absl::StatusOr<Text> Padding(int64_t missing, const Text& fill, Machine& machine) {
  Text padding;
  if (missing <= 0) return padding;
  if (CountCharacters(fill.view()) != 1) {
    return InvalidArgument("the fill character must be exactly one character");
  }
  RETURN_IF_ERROR(machine.Spend(static_cast<size_t>(missing)));
  for (int64_t i = 0; i < missing; ++i) padding.Append(fill);
  return padding;
}

template <From kFrom>
Result Justify(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("just", {"width", "fillchar"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 0));
  ASSIGN_OR_RETURN(const Text fill, bound.String(1, " ", machine));
  const Text& text = *self.text();
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  const int64_t missing = MissingTo(width, text);
  ASSIGN_OR_RETURN(Text padding, Padding(missing, fill, machine));
  if (kFrom == From::kRight) {
    padding.Append(text);
    return Value(std::move(padding));
  }
  Text out = text;
  out.Append(padding);
  return Value(std::move(out));
}

Result CenterMethod(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("center", {"width", "fillchar"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 0));
  ASSIGN_OR_RETURN(const Text fill, bound.String(1, " ", machine));
  ASSIGN_OR_RETURN(Text text, CenterText(*self.text(), width, fill, machine));
  return Value(std::move(text));
}

Result ZeroFill(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("zfill", {"width"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 0));
  const Text& text = *self.text();
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  const int64_t missing = MissingTo(width, text);
  ASSIGN_OR_RETURN(const Text padding, Padding(missing, Text("0"), machine));
  const bool sign = !text.empty() && (text.view()[0] == '+' || text.view()[0] == '-');
  Text out = text.Slice(0, sign ? 1 : 0);
  out.Append(padding);
  out.Append(text, sign ? 1 : 0, text.size());
  return Value(std::move(out));
}

constexpr MethodEntry kStringMethods[] = {
    {"capitalize", ChangeCase<Capitalize>},
    {"casefold", nullptr},
    {"center", CenterMethod},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format", FormatMethod},
    {"format_map", nullptr},
    {"isalnum", All<IsAlphaNumeric>},
    {"isalpha", All<IsAlpha>},
    {"isascii", nullptr},
    {"isdecimal", All<IsDecimal>},
    {"isdigit", All<IsDigit>},
    {"isidentifier", nullptr},
    {"islower", AllCased<IsLower>},
    {"isnumeric", All<IsNumeric>},
    {"isprintable", nullptr},
    {"isspace", All<IsSpace>},
    {"istitle", nullptr},
    {"isupper", AllCased<IsUpper>},
    {"join", JoinMethod},
    {"ljust", Justify<From::kLeft>},
    {"lower", ChangeCase<Lower>},
    {"lstrip", Strip<Side::kLeft>},
    {"maketrans", nullptr},
    {"rjust", Justify<From::kRight>},
    {"rstrip", Strip<Side::kRight>},
    {"strip", Strip<Side::kBoth>},
    {"swapcase", ChangeCase<SwapCase>},
    {"title", ChangeCase<TitleCase>},
    {"translate", nullptr},
    {"upper", ChangeCase<Upper>},
    {"zfill", ZeroFill},
};

}  // namespace

const MethodEntry* FindStringMethod(std::string_view name) {
  for (const std::span<const MethodEntry> methods :
       {std::span<const MethodEntry>(kStringMethods), SplitMethods(), SearchMethods()}) {
    for (const MethodEntry& entry : methods) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

absl::StatusOr<Value> JoinTexts(const Text& separator, const std::vector<Text>& texts,
                                Machine& machine) {
  size_t size = texts.size() * separator.size();
  for (const Text& text : texts) size += text.size();
  RETURN_IF_ERROR(machine.SpendBytes(size));
  Text joined;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) joined.Append(separator);
    joined.Append(texts[i]);
  }
  return Value(std::move(joined));
}

absl::StatusOr<Text> CenterText(const Text& text, int64_t width, const Text& fill,
                                Machine& machine) {
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  const int64_t missing = MissingTo(width, text);
  if (missing <= 0) return text;
  // Chooses the side that gets the odd fill character as Python does.
  const int64_t left = missing / 2 + (missing & width & 1);
  ASSIGN_OR_RETURN(Text out, Padding(left, fill, machine));
  ASSIGN_OR_RETURN(const Text right, Padding(missing - left, fill, machine));
  out.Append(text);
  out.Append(right);
  return out;
}

}  // namespace tandem::jinja
