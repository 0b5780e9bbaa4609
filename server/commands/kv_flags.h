#pragma once

#include "CLI/CLI.hpp"

namespace tandem {

// For CLI::Option::check: a name of KvQuality; "none", or a text that ParseTokenEviction takes.
CLI::Validator KvQualityText();
CLI::Validator TokenEvictionText();

}  // namespace tandem
