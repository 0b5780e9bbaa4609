// The methods of str that divide a text into parts.
#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/methods.h"

namespace tandem::jinja {
namespace {

using Result = absl::StatusOr<Value>;

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

constexpr MethodEntry kSplitMethods[] = {
    {"partition", Partition<From::kLeft>}, {"rpartition", Partition<From::kRight>},
    {"rsplit", Split<From::kRight>},       {"split", Split<From::kLeft>},
    {"splitlines", SplitLinesMethod},
};

}  // namespace

std::span<const MethodEntry> SplitMethods() { return kSplitMethods; }

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

}  // namespace tandem::jinja
