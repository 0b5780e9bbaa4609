#pragma once

#include "CLI/CLI.hpp"

namespace tandem {

// For CLI::Option::check. What they refuse they quote, with what may be given.
CLI::Validator Positive();
CLI::Validator NotNegative();
// A number of seconds up to `most`; "off" becomes 0.
CLI::Validator SecondsOrOff(double most);

}  // namespace tandem
