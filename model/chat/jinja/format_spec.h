#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "model/chat/jinja/text.h"

namespace tandem::jinja {

// How one value is written: the fields of "%-05.2f" and of "{:<5.2f}".
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ or = ; 0: as the type wants it
  char sign = 0;   // + or a space
  bool alternate = false;
  bool commas = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

// INVALID_ARGUMENT when the width or the precision is above what a template may ask for.
absl::Status CheckSpec(const FormatSpec& spec);
// Reads a decimal number such as "12" at `at`; 0 where there are no digits. A number that CheckSpec
// refuses may come out smaller, but never as one that it accepts.
int64_t ReadCount(std::string_view text, size_t& at);

// The digits of a number with its sign, neither padded nor aligned, by the type of `spec`.
absl::StatusOr<std::string> FormatInteger(int64_t value, const FormatSpec& spec);
// As FormatInteger. UNIMPLEMENTED for a type that is none of f, F, e, E, g, G and %.
absl::StatusOr<std::string> FormatFloat(double value, const FormatSpec& spec);

// The text with fill characters up to the width of `spec`. `default_align` counts where `spec` has
// no alignment.
Text Pad(Text text, const FormatSpec& spec, char default_align);
// The first `precision` characters of the text; all of it where `precision` is negative.
Text Truncate(Text text, int64_t precision);

}  // namespace tandem::jinja
