#pragma once

namespace tandem::fit_units {

// The units in which a fit counts the tokens and pairs of a step, so that its coefficients, in
// milliseconds per unit, are of one order of magnitude.
inline constexpr double kTokens = 1e2;
inline constexpr double kPairs = 1e5;
inline constexpr double kSequences = 1e1;
inline constexpr double kContext = 1e4;

}  // namespace tandem::fit_units
