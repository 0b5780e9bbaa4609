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

enum class From : uint8_t { kLeft, kRight };

// Splits at runs of white space, and drops white space at both ends.
std::vector<Text> SplitAtSpace(const Text& text, int64_t limit, From from) {
  std::vector<Text> parts;
  const std::string_view bytes = text.view();
  size_t begin = 0;
  size_t end = bytes.size();
  while (true) {
    const Trimmed rest = Trim(bytes.substr(begin, end - begin), nullptr,
                              from == From::kLeft ? Side::kLeft : Side::kRight);
    end = begin + rest.end;
    begin += rest.begin;
    if (begin == end) break;
    if (limit >= 0 && static_cast<int64_t>(parts.size()) == limit) {
      const Trimmed last = Trim(bytes.substr(begin, end - begin), nullptr,
                                from == From::kLeft ? Side::kLeft : Side::kRight);
      parts.push_back(text.Slice(begin + last.begin, begin + last.end));
      break;
    }
    size_t at = from == From::kLeft ? begin : end;
    if (from == From::kLeft) {
      while (at < end) {
        size_t next = at;
        if (IsSpace(NextCharacter(bytes, next))) break;
        at = next;
      }
      parts.push_back(text.Slice(begin, at));
      begin = at;
    } else {
      while (at > begin) {
        size_t previous = at;
        if (IsSpace(PreviousCharacter(bytes, previous))) break;
        at = previous;
      }
      parts.push_back(text.Slice(at, end));
      end = at;
    }
  }
  if (from == From::kRight) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Text> SplitAtText(const Text& text, std::string_view separator, int64_t limit) {
  std::vector<Text> parts;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = FindText(text.view(), separator, begin);
    if (at == std::string_view::npos) break;
    parts.push_back(text.Slice(begin, at));
    begin = at + separator.size();
  }
  parts.push_back(text.Slice(begin, text.size()));
  return parts;
}

// Splits from the right, by searching the mirrored text from the left.
std::vector<Text> SplitAtTextFromRight(const Text& text, std::string_view separator,
                                       int64_t limit) {
  std::vector<Text> parts;
  const std::string mirrored(text.bytes().rbegin(), text.bytes().rend());
  const std::string wanted(separator.rbegin(), separator.rend());
  size_t end = text.size();
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t at = FindText(mirrored, wanted, text.size() - end);
    if (at == std::string_view::npos) break;
    parts.push_back(text.Slice(text.size() - at, end));
    end = text.size() - at - separator.size();
  }
  parts.push_back(text.Slice(0, end));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Result ListOfTexts(std::vector<Text> texts, List::Kind kind = List::Kind::kList) {
  std::vector<Value> items;
  items.reserve(texts.size());
  for (Text& text : texts) items.emplace_back(std::move(text));
  return MakeList(std::move(items), kind);
}

template <From kFrom>
Result Split(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("split", {"sep", "maxsplit"}, 0, std::move(arguments)));
  const Text& text = *self.text();
  ASSIGN_OR_RETURN(const int64_t limit, bound.Integer(1, -1));
  // Splitting costs steps in advance, because every part becomes a value of its own.
  RETURN_IF_ERROR(machine.Spend(text.size() / 8 + 1));
  if (bound.Get(0).is_none()) {
    std::vector<Text> parts = SplitAtSpace(text, limit, kFrom);
    RETURN_IF_ERROR(machine.Spend(parts.size()));
    return ListOfTexts(std::move(parts));
  }
  ASSIGN_OR_RETURN(const Text separator, bound.String(0, "", machine));
  if (separator.empty()) return InvalidArgument("split() wants a separator that is not empty");
  std::vector<Text> parts = kFrom == From::kLeft
                                ? SplitAtText(text, separator.view(), limit)
                                : SplitAtTextFromRight(text, separator.view(), limit);
  RETURN_IF_ERROR(machine.Spend(parts.size()));
  return ListOfTexts(std::move(parts));
}

template <From kFrom>
Result Partition(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("partition", {"sep"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text separator, bound.String(0, "", machine));
  if (separator.empty()) return InvalidArgument("partition() wants a separator");
  const Text& text = *self.text();
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  const size_t at = kFrom == From::kLeft ? FindText(text.view(), separator.view())
                                         : FindLastText(text.view(), separator.view());
  if (at == std::string_view::npos) {
    if (kFrom == From::kLeft) return ListOfTexts({text, Text(), Text()}, List::Kind::kTuple);
    return ListOfTexts({Text(), Text(), text}, List::Kind::kTuple);
  }
  const size_t end = at + separator.size();
  return ListOfTexts({text.Slice(0, at), text.Slice(at, end), text.Slice(end, text.size())},
                     List::Kind::kTuple);
}

Result SplitLinesMethod(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("splitlines", {"keepends"}, 0, std::move(arguments)));
  RETURN_IF_ERROR(machine.Spend(self.text()->size() / 4 + 1));
  return ListOfTexts(SplitLines(*self.text(), bound.Truth(0, false)));
}

// The part of a text between two optional positions, as s.find(x, start, end) has it.
absl::StatusOr<Trimmed> RangeOf(const Text& text, const Bound& bound, size_t first) {
  const auto count = static_cast<int64_t>(CountCharacters(text.view()));
  const auto clamp = [count](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + count : at, 0, count);
  };
  int64_t begin = 0;
  int64_t end = count;
  if (!bound.Get(first).is_none()) {
    ASSIGN_OR_RETURN(begin, bound.Integer(first, 0));
    if (begin > count) return Trimmed{1, 0};
  }
  if (!bound.Get(first + 1).is_none()) {
    ASSIGN_OR_RETURN(end, bound.Integer(first + 1, count));
  }
  return Trimmed{OffsetOf(text.view(), static_cast<size_t>(clamp(begin))),
                 OffsetOf(text.view(), static_cast<size_t>(clamp(end)))};
}

enum class Where : uint8_t { kStart, kEnd };

template <Where kWhere>
Result StartsOrEnds(Machine& machine, const Value& self, Arguments arguments) {
  constexpr std::string_view kName = kWhere == Where::kStart ? "startswith" : "endswith";
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To(kName, {"prefix", "start", "end"}, 1, std::move(arguments)));
  RETURN_IF_ERROR(machine.SpendBytes(self.text()->size()));
  ASSIGN_OR_RETURN(const Trimmed range, RangeOf(*self.text(), bound, 1));
  std::vector<Value> wanted = {bound.Get(0)};
  if (const List* list = wanted[0].list(); list && list->kind == List::Kind::kTuple) {
    RETURN_IF_ERROR(machine.Spend(list->items.size()));
    wanted = std::vector<Value>(list->items);
  }
  for (const Value& value : wanted) {
    RETURN_IF_ERROR(machine.SpendOnReading(value));
    const Text* affix = value.text();
    if (affix == nullptr) {
      return InvalidArgument("{}() wants a string or a tuple of strings, not '{}'", kName,
                             value.type());
    }
    if (range.begin > range.end) continue;
    const std::string_view text = self.text()->view().substr(range.begin, range.end - range.begin);
    if (kWhere == Where::kStart ? text.starts_with(affix->view()) : text.ends_with(affix->view())) {
      return Value(true);
    }
  }
  return Value(false);
}

template <Where kWhere>
Result RemoveAffix(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("removeprefix", {"affix"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text affix, bound.String(0, "", machine));
  const Text& text = *self.text();
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  if (kWhere == Where::kStart && text.view().starts_with(affix.view())) {
    return Value(text.Slice(affix.size(), text.size()));
  }
  if (kWhere == Where::kEnd && text.view().ends_with(affix.view())) {
    return Value(text.Slice(0, text.size() - affix.size()));
  }
  return self;
}

Result ReplaceMethod(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("replace", {"old", "new", "count"}, 2, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text old, bound.String(0, "", machine));
  ASSIGN_OR_RETURN(const Text replacement, bound.String(1, "", machine));
  ASSIGN_OR_RETURN(const int64_t count, bound.Integer(2, -1));
  ASSIGN_OR_RETURN(Text text, ReplaceText(*self.text(), old, replacement, count, machine));
  return Value(std::move(text));
}

enum class Missing : uint8_t { kMinusOne, kError };

template <From kFrom, Missing kMissing>
Result Find(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("find", {"sub", "start", "end"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text wanted, bound.String(0, "", machine));
  const Text& text = *self.text();
  RETURN_IF_ERROR(machine.SpendBytes(text.size() * 4));
  ASSIGN_OR_RETURN(const Trimmed range, RangeOf(text, bound, 1));
  size_t at = std::string_view::npos;
  if (range.begin <= range.end) {
    const std::string_view part = text.view().substr(range.begin, range.end - range.begin);
    at = kFrom == From::kLeft ? FindText(part, wanted.view()) : FindLastText(part, wanted.view());
  }
  if (at != std::string_view::npos) {
    return Value(static_cast<int64_t>(CountCharacters(text.view().substr(0, range.begin + at))));
  }
  if (kMissing == Missing::kError) return InvalidArgument("index(): substring not found");
  return Value(int64_t{-1});
}

Result Count(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("count", {"sub", "start", "end"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text wanted, bound.String(0, "", machine));
  const Text& text = *self.text();
  RETURN_IF_ERROR(machine.SpendBytes(text.size() * 4));
  ASSIGN_OR_RETURN(const Trimmed range, RangeOf(text, bound, 1));
  if (range.begin > range.end) return Value(int64_t{0});
  const std::string_view part = text.view().substr(range.begin, range.end - range.begin);
  if (wanted.empty()) return Value(static_cast<int64_t>(CountCharacters(part)) + 1);
  int64_t count = 0;
  for (size_t at = FindText(part, wanted.view()); at != std::string_view::npos;
       at = FindText(part, wanted.view(), at + wanted.size())) {
    ++count;
  }
  return Value(count);
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
    {"count", Count},
    {"encode", nullptr},
    {"endswith", StartsOrEnds<Where::kEnd>},
    {"expandtabs", nullptr},
    {"find", Find<From::kLeft, Missing::kMinusOne>},
    {"format", FormatMethod},
    {"format_map", nullptr},
    {"index", Find<From::kLeft, Missing::kError>},
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
    {"partition", Partition<From::kLeft>},
    {"removeprefix", RemoveAffix<Where::kStart>},
    {"removesuffix", RemoveAffix<Where::kEnd>},
    {"replace", ReplaceMethod},
    {"rfind", Find<From::kRight, Missing::kMinusOne>},
    {"rindex", Find<From::kRight, Missing::kError>},
    {"rjust", Justify<From::kRight>},
    {"rpartition", Partition<From::kRight>},
    {"rsplit", Split<From::kRight>},
    {"rstrip", Strip<Side::kRight>},
    {"split", Split<From::kLeft>},
    {"splitlines", SplitLinesMethod},
    {"startswith", StartsOrEnds<Where::kStart>},
    {"strip", Strip<Side::kBoth>},
    {"swapcase", ChangeCase<SwapCase>},
    {"title", ChangeCase<TitleCase>},
    {"translate", nullptr},
    {"upper", ChangeCase<Upper>},
    {"zfill", ZeroFill},
};

}  // namespace

std::span<const MethodEntry> StringMethods() { return kStringMethods; }

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

absl::StatusOr<Text> ReplaceText(const Text& text, const Text& old, const Text& replacement,
                                 int64_t count, Machine& machine) {
  RETURN_IF_ERROR(machine.SpendBytes(text.size()));
  Text out;
  size_t at = 0;
  for (int64_t done = 0; count < 0 || done < count; ++done) {
    // An empty text is found before each character and at the end.
    const bool between = old.empty() && done > 0;
    if (between && at == text.size()) break;
    const size_t found = old.empty() ? (between ? at + CharacterBytes(text.view()[at]) : 0)
                                     : FindText(text.view(), old.view(), at);
    if (found == std::string_view::npos) break;
    RETURN_IF_ERROR(machine.SpendBytes(replacement.size()));
    out.Append(text, at, found);
    out.Append(replacement);
    at = found + old.size();
  }
  out.Append(text, at, text.size());
  return out;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  const std::string_view bytes = text.view();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = at;
    if (!IsLineBreak(NextCharacter(bytes, at))) continue;
    if (bytes[end] == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.Slice(begin, keep_ends ? at : end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.Slice(begin, bytes.size()));
  return lines;
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
