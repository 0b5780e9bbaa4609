#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Unicode properties and normal forms (ICU). Every `text` here is well-formed UTF-8.

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Converts `text` to a normal form. INTERNAL when ICU has no data for the form.
absl::StatusOr<std::string> ToNormalForm(std::string_view text, NormalForm form);

// Maps each character to its full lower-case form, independently of its context.
std::string ToLower(std::string_view text);

// Classes of characters, each a predicate over one code point.
bool IsWhitespace(int32_t c);   // White_Space
bool IsNumeric(int32_t c);      // Nd, Nl, No
bool IsPunctuation(int32_t c);  // P*, and the ASCII symbols that C calls punctuation
bool IsWord(int32_t c);         // what \w means in UTS 18: letters, marks, digits, connectors

struct Character {
  int32_t code_point;
  size_t length;  // bytes
};
// The first and the last character of `text`, which must not be empty.
Character FirstCharacter(std::string_view text);
Character LastCharacter(std::string_view text);

}  // namespace tandem
