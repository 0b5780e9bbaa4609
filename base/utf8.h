#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// The number of leading bytes of `text` that are well-formed UTF-8 (Unicode 15, table 3-7: no
// overlong form, no surrogate, nothing above U+10FFFF). Equal to text.size() when all of it is.
size_t ValidUtf8Prefix(std::string_view text);

// `text` with each maximal ill-formed part replaced by U+FFFD, as Unicode recommends (3.9, "best
// practices for using U+FFFD") and Python's errors="replace" does.
std::string ReplaceInvalidUtf8(std::string_view text);

// How many bytes at the end of `text` are the start of a character that further bytes could
// complete (0 to 3): what a stream must hold back.
size_t IncompleteUtf8Suffix(std::string_view text);

}  // namespace tandem
