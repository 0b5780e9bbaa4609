#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "model/answer/answer_markup.h"

namespace tandem {

// The offset of what a text does not contain.
inline constexpr size_t kNoOffset = std::string_view::npos;

// A call of a probe in text[begin, end) of a prompt, and the marks within it. The marks around it
// are left empty.
struct CallCore {
  size_t begin = 0;
  size_t end = 0;
  CallMarkup markup;
};

// Finds the call of the tool `name` at or after `from`. Nothing where the text has no such call, or
// one that no form of CallMarkup describes.
std::optional<CallCore> FindCallCore(std::string_view text, size_t from, std::string_view name);

}  // namespace tandem
