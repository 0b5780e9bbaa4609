#pragma once

#include "CLI/CLI.hpp"

namespace tandem {

// Validators for CLI::Option::check: KvQualityText accepts a name of KvQuality, and
// TokenEvictionText accepts "none" or a text that ParseTokenEviction takes.
CLI::Validator KvQualityText();
CLI::Validator TokenEvictionText();

}  // namespace tandem
