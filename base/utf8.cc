#include "base/utf8.h"

#include <algorithm>
#include <cstdint>

namespace tandem {
namespace {

struct Lead {
  int length;          // bytes of a character with this lead byte; 0: no character has it
  uint8_t low = 0x80;  // the second byte is in [low, high]
  uint8_t high = 0xBF;
};

Lead Classify(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0};
}

struct Part {
  size_t length;  // bytes of the character or of the maximal ill-formed part, at least 1
  bool valid;
  bool truncated;  // ill-formed only because the text ends
};

// The first character of `text`, or its first maximal ill-formed part. `text` must not be empty.
Part FirstPart(std::string_view text) {
  const Lead lead = Classify(static_cast<uint8_t>(text[0]));
  if (lead.length == 0) return {1, false, false};
  size_t i = 1;
  for (; i < static_cast<size_t>(lead.length); ++i) {
    if (i == text.size()) return {i, false, true};
    const auto byte = static_cast<uint8_t>(text[i]);
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {i, false, false};
  }
  return {i, true, false};
}

}  // namespace

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Part part = FirstPart(text.substr(at));
    if (!part.valid) return at;
    at += part.length;
  }
  return at;
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Part part = FirstPart(text);
    if (part.valid) {
      out.append(text.substr(0, part.length));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    text.remove_prefix(part.length);
  }
  return out;
}

size_t IncompleteUtf8Suffix(std::string_view text) {
  for (size_t length = 1; length <= std::min<size_t>(3, text.size()); ++length) {
    const std::string_view suffix = text.substr(text.size() - length);
    const Part part = FirstPart(suffix);
    if (part.truncated && part.length == length) return length;
  }
  return 0;
}

}  // namespace tandem
