// The methods of str that look for one text in another, and those that replace or remove it.
#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/methods.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

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

constexpr MethodEntry kSearchMethods[] = {
    {"count", Count},
    {"endswith", StartsOrEnds<Where::kEnd>},
    {"find", Find<From::kLeft, Missing::kMinusOne>},
    {"index", Find<From::kLeft, Missing::kError>},
    {"removeprefix", RemoveAffix<Where::kStart>},
    {"removesuffix", RemoveAffix<Where::kEnd>},
    {"replace", ReplaceMethod},
    {"rfind", Find<From::kRight, Missing::kMinusOne>},
    {"rindex", Find<From::kRight, Missing::kError>},
    {"startswith", StartsOrEnds<Where::kStart>},
};

}  // namespace

std::span<const MethodEntry> SearchMethods() { return kSearchMethods; }

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

}  // namespace tandem::jinja
