#include "model/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>
#include <unicode/uchar.h>
#include <unicode/uniset.h>
#include <unicode/utf8.h>

#include "base/status.h"

namespace tandem {
namespace {

const icu::Normalizer2* Instance(NormalForm form, UErrorCode& error) {
  switch (form) {
    case NormalForm::kNfc:
      return icu::Normalizer2::getNFCInstance(error);
    case NormalForm::kNfd:
      return icu::Normalizer2::getNFDInstance(error);
    case NormalForm::kNfkc:
      return icu::Normalizer2::getNFKCInstance(error);
    case NormalForm::kNfkd:
      return icu::Normalizer2::getNFKDInstance(error);
  }
  error = U_ILLEGAL_ARGUMENT_ERROR;
  return nullptr;
}

// The characters that the reference library normalizes, by the tables of Unicode 9.0: later
// characters stay unchanged, and marks among them are not reordered.
const icu::UnicodeSet* KnownCharacters() {
  static const icu::UnicodeSet* const known = [] {
    UErrorCode error = U_ZERO_ERROR;
    auto* set = new icu::UnicodeSet(UNICODE_STRING_SIMPLE("[:age=9.0:]"), error);
    set->freeze();
    return U_SUCCESS(error) ? set : nullptr;
  }();
  return known;
}

void AppendCharacter(int32_t c, std::string& out) {
  char bytes[U8_MAX_LENGTH];
  int32_t length = 0;
  U8_APPEND_UNSAFE(bytes, length, c);
  out.append(bytes, static_cast<size_t>(length));
}

}  // namespace

absl::StatusOr<std::string> ToNormalForm(std::string_view text, NormalForm form) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* newest = Instance(form, error);
  const icu::UnicodeSet* known = KnownCharacters();
  if (known == nullptr) return Internal("ICU has no table of character ages");
  std::string out;
  if (U_SUCCESS(error)) {
    const icu::FilteredNormalizer2 normalizer(*newest, *known);
    icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
    const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
    normalizer.normalizeUTF8(0, piece, sink, nullptr, error);
  }
  if (U_FAILURE(error)) return Internal("ICU cannot normalize: {}", u_errorName(error));
  return out;
}

std::string ToLower(std::string_view text) {
  // The only character whose full lower-case mapping has more than one character.
  constexpr int32_t kCapitalDottedI = 0x130;
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character first = FirstCharacter(text);
    if (first.code_point == kCapitalDottedI) {
      out.append("i\xCC\x87");
    } else {
      AppendCharacter(u_tolower(first.code_point), out);
    }
    text.remove_prefix(first.length);
  }
  return out;
}

bool IsWhitespace(int32_t c) { return u_hasBinaryProperty(c, UCHAR_WHITE_SPACE) != 0; }

bool IsNumeric(int32_t c) {
  return (U_GET_GC_MASK(c) & (U_GC_ND_MASK | U_GC_NL_MASK | U_GC_NO_MASK)) != 0;
}

bool IsPunctuation(int32_t c) {
  if (c < 0x80) {
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') ||
           (c >= '{' && c <= '~');
  }
  return (U_GET_GC_MASK(c) & U_GC_P_MASK) != 0;
}

bool IsWord(int32_t c) {
  return (U_GET_GC_MASK(c) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(c, UCHAR_ALPHABETIC) != 0 ||
         u_hasBinaryProperty(c, UCHAR_JOIN_CONTROL) != 0;
}

Character FirstCharacter(std::string_view text) {
  int32_t at = 0;
  int32_t c = 0;
  U8_NEXT_UNSAFE(text.data(), at, c);
  return {c, static_cast<size_t>(at)};
}

Character LastCharacter(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && U8_IS_TRAIL(text[start])) --start;
  return FirstCharacter(text.substr(start));
}

}  // namespace tandem
