#pragma once

#include "CLI/CLI.hpp"

namespace tandem {

// For CLI::Option::check. What they refuse they quote, with what may be given.
CLI::Validator Positive();
CLI::Validator NotNegative();

}  // namespace tandem
