#include "model/chat/jinja/characters.h"

#include <unicode/bytestream.h>
#include <unicode/casemap.h>
#include <unicode/uchar.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <cstring>

namespace tandem::jinja {
namespace {

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 128; });
}

template <typename Map>
std::string MapCase(std::string_view text, Map map) {
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  UErrorCode error = U_ZERO_ERROR;
  map(icu::StringPiece(text.data(), static_cast<int32_t>(text.size())), sink, error);
  return out;
}

std::string TitleCharacter(int32_t c) {
  // Only characters beyond ASCII can have a title-case form of several characters; ICU's function
  // of single characters does not return it.
  std::string one;
  AppendCharacter(c, one);
  if (c < 128) return std::string(1, static_cast<char>(u_toupper(c)));
  return MapCase(one, [](icu::StringPiece piece, icu::ByteSink& sink, UErrorCode& error) {
    icu::CaseMap::utf8ToTitle("", U_TITLECASE_WHOLE_STRING | U_TITLECASE_NO_BREAK_ADJUSTMENT,
                              nullptr, piece, sink, nullptr, error);
  });
}

}  // namespace

size_t CharacterBytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  if (byte < 0xC0) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !U8_IS_TRAIL(c); }));
}

size_t OffsetOf(std::string_view text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < text.size(); --index) at += CharacterBytes(text[at]);
  return std::min(at, text.size());
}

int32_t NextCharacter(std::string_view text, size_t& at) {
  int32_t c = 0;
  U8_NEXT_UNSAFE(text.data(), at, c);
  return c;
}

int32_t PreviousCharacter(std::string_view text, size_t& at) {
  --at;
  while (at > 0 && U8_IS_TRAIL(text[at])) --at;
  size_t end = at;
  return NextCharacter(text, end);
}

void AppendCharacter(int32_t code_point, std::string& out) {
  char bytes[U8_MAX_LENGTH];
  int32_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, code_point);
  out.append(bytes, static_cast<size_t>(length));
}

bool IsSpace(int32_t c) {
  if (c < 128) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(int32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool IsPrintable(int32_t c) {
  if (c == ' ') return true;
  return (U_GET_GC_MASK(c) & (U_GC_C_MASK | U_GC_Z_MASK)) == 0;
}

bool IsWordCharacter(int32_t c) { return c == '_' || IsAlpha(c) || IsNumeric(c); }
bool IsAlpha(int32_t c) { return (U_GET_GC_MASK(c) & U_GC_L_MASK) != 0; }
bool IsDecimal(int32_t c) { return u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) == U_NT_DECIMAL; }
bool IsDigit(int32_t c) {
  const int32_t type = u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE);
  return type == U_NT_DECIMAL || type == U_NT_DIGIT;
}
bool IsNumeric(int32_t c) { return u_getIntPropertyValue(c, UCHAR_NUMERIC_TYPE) != U_NT_NONE; }
bool IsLower(int32_t c) { return u_hasBinaryProperty(c, UCHAR_LOWERCASE) != 0; }
bool IsUpper(int32_t c) { return u_hasBinaryProperty(c, UCHAR_UPPERCASE) != 0; }
bool IsCased(int32_t c) { return IsLower(c) || IsUpper(c) || u_istitle(c) != 0; }

std::string Upper(std::string_view text) {
  if (IsAscii(text)) {
    std::string out(text);
    for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
    return out;
  }
  return MapCase(text, [](icu::StringPiece piece, icu::ByteSink& sink, UErrorCode& error) {
    icu::CaseMap::utf8ToUpper("", 0, piece, sink, nullptr, error);
  });
}

std::string Lower(std::string_view text) {
  if (IsAscii(text)) {
    std::string out(text);
    for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
  }
  return MapCase(text, [](icu::StringPiece piece, icu::ByteSink& sink, UErrorCode& error) {
    icu::CaseMap::utf8ToLower("", 0, piece, sink, nullptr, error);
  });
}

std::string TitleCase(std::string_view text) {
  // Lower case depends on the neighbours (the final sigma), so that each rest of a word is mapped
  // as a whole.
  std::string out;
  size_t at = 0;
  while (at < text.size()) {
    const size_t begin = at;
    const int32_t c = NextCharacter(text, at);
    if (!IsCased(c)) {
      out.append(text.substr(begin, at - begin));
      continue;
    }
    out += TitleCharacter(c);
    const size_t rest = at;
    for (size_t next = at; next < text.size() && IsCased(NextCharacter(text, next));) at = next;
    out += Lower(text.substr(rest, at - rest));
  }
  return out;
}

std::string Capitalize(std::string_view text) {
  if (text.empty()) return "";
  size_t at = 0;
  const int32_t first = NextCharacter(text, at);
  return TitleCharacter(first) + Lower(text.substr(at));
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const int32_t c = NextCharacter(text, at);
    const std::string_view one = text.substr(begin, at - begin);
    if (IsUpper(c)) {
      out += Lower(one);
    } else if (IsLower(c)) {
      out += Upper(one);
    } else {
      out.append(one);
    }
  }
  return out;
}

Trimmed Trim(std::string_view text, const std::string_view* chars, Side side) {
  const auto goes = [chars](std::string_view one, int32_t c) {
    return chars == nullptr ? IsSpace(c) : chars->find(one) != std::string_view::npos;
  };
  size_t begin = 0;
  size_t end = text.size();
  while (side != Side::kRight && begin < end) {
    size_t next = begin;
    const int32_t c = NextCharacter(text, next);
    if (!goes(text.substr(begin, next - begin), c)) break;
    begin = next;
  }
  while (side != Side::kLeft && begin < end) {
    size_t previous = end;
    const int32_t c = PreviousCharacter(text, previous);
    if (!goes(text.substr(previous, end - previous), c)) break;
    end = previous;
  }
  return {begin, end};
}

namespace {
// The longest text that is searched for with std::string_view::find. For short texts it is faster,
// and it compares at most this many bytes per offset.
constexpr size_t kShortText = 32;
}  // namespace

size_t FindText(std::string_view text, std::string_view wanted, size_t from) {
  if (wanted.size() <= kShortText || from >= text.size()) return text.find(wanted, from);
  const std::string_view rest = text.substr(from);
  const void* found = memmem(rest.data(), rest.size(), wanted.data(), wanted.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t FindLastText(std::string_view text, std::string_view wanted) {
  if (wanted.size() <= kShortText) return text.rfind(wanted);
  const std::string mirrored(text.rbegin(), text.rend());
  const size_t at = FindText(mirrored, std::string(wanted.rbegin(), wanted.rend()));
  return at == std::string_view::npos ? at : text.size() - at - wanted.size();
}

}  // namespace tandem::jinja
