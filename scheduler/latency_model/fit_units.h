#pragma once

namespace tandem::fit_units {

// A fit counts the features of steps in these units, so that its coefficients, each of them
// milliseconds on some machine, are of one order of magnitude.
inline constexpr double kTokens = 1e2;
inline constexpr double kPairs = 1e5;
inline constexpr double kSequences = 1e1;
inline constexpr double kContext = 1e4;

}  // namespace tandem::fit_units
