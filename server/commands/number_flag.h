#pragma once

#include "CLI/CLI.hpp"

namespace tandem {

// Validators of numbers, for CLI::Option::check. An error quotes the text and says what may be
// given.
CLI::Validator Positive();
CLI::Validator NotNegative();
// Accepts a number of seconds up to `most`, or "off", which becomes 0.
CLI::Validator SecondsOrOff(double most);

}  // namespace tandem
