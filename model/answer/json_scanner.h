#pragma once

#include <string>

namespace tandem {

// Checks one string, object or array of JSON character by character, without building it. Control
// characters in strings pass, because models write line breaks there; NeedsEscape finds them.
class JsonScanner {
 public:
  enum class Result { kMore, kDone, kError };

  static constexpr size_t kMaxDepth = 100;

  // Takes the next character. None may be pushed after kDone and kError.
  Result Push(char c);
  // Whether the character that was pushed last must be escaped in a text that others parse.
  bool NeedsEscape(char c) const {
    return static_cast<unsigned char>(c) < 0x20 && state_ == State::kString;
  }

 private:
  enum class State {
    kFirst,       // the first character of the value itself
    kValue,       // expects a value, after ':' or ','
    kValueOrEnd,  // expects a value or ']', after '['
    kKey,         // expects a key, after ',' in an object
    kKeyOrEnd,    // expects a key or '}', after '{'
    kColon,
    kNext,  // expects ',' or the end of the array or object
    kString,
    kEscape,
    kHex,
    kScalar,
  };

  Result Begin(char c);
  Result EndValue();
  Result EndScalar(char c);
  Result InString(char c);
  Result InContainer(char c);

  State state_ = State::kFirst;
  std::string open_;  // '{' and '[' that have not been closed
  bool is_key_ = false;
  int hex_left_ = 0;
  std::string scalar_;
};

// The character `c` as it must be written in a string of JSON.
std::string EscapedControl(char c);

}  // namespace tandem
