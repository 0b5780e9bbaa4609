#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::jinja {

// Strings as Python sees them: sequences of code points. Every `text` is well-formed UTF-8.

// The length in bytes of the character whose first byte is `first`.
size_t CharacterBytes(char first);
size_t CountCharacters(std::string_view text);
// The offset of the character `index`, at most text.size().
size_t OffsetOf(std::string_view text, size_t index);
// Decodes the character at `at` and moves `at` behind it.
int32_t NextCharacter(std::string_view text, size_t& at);
// Decodes the character that ends at `at`, which must not be 0, and moves `at` to its start.
int32_t PreviousCharacter(std::string_view text, size_t& at);
void AppendCharacter(int32_t code_point, std::string& out);

// As Python's str.isspace() for one character.
bool IsSpace(int32_t c);
// Whether str.splitlines() breaks a line after this character.
bool IsLineBreak(int32_t c);
// As Python's str.isprintable() for one character.
bool IsPrintable(int32_t c);
// Whether \w of Python's regular expressions matches the character.
bool IsWordCharacter(int32_t c);
// As Python's str.isalpha(), isdecimal(), isdigit() and isnumeric() for one character.
bool IsAlpha(int32_t c);
bool IsDecimal(int32_t c);
bool IsDigit(int32_t c);
bool IsNumeric(int32_t c);
bool IsLower(int32_t c);
bool IsUpper(int32_t c);
bool IsCased(int32_t c);  // lower, upper or title case

std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
// As Python's str.title(): the first letter after each character that has no case becomes a
// capital.
std::string TitleCase(std::string_view text);
// As Python's str.capitalize().
std::string Capitalize(std::string_view text);
std::string SwapCase(std::string_view text);

// The offsets between which `text` remains when the characters of `chars`, or without them white
// space, are removed from its ends.
struct Trimmed {
  size_t begin;
  size_t end;
};
enum class Side : uint8_t { kLeft, kRight, kBoth };
Trimmed Trim(std::string_view text, const std::string_view* chars, Side side);

// The offset at or after `from` where `wanted` is in `text`, or npos. Takes time in proportion to
// the text, whatever both are: std::string_view::find may compare all of `wanted` at each offset.
size_t FindText(std::string_view text, std::string_view wanted, size_t from = 0);
// The offset of the last place where `wanted` is in `text`, or npos. Takes linear time, as
// FindText.
size_t FindLastText(std::string_view text, std::string_view wanted);

}  // namespace tandem::jinja
