#pragma once

#include "CLI/CLI.hpp"

namespace tandem {

// Whether the unit "k" means 1000 or 1024, in the sense of CLI::AsSizeValue.
enum class Kilo { k1000, k1024 };

// For CLI::Option::transform: bytes with or without a unit, as 512MiB. Refuses what is below zero,
// which CLI::AsSizeValue takes for a very large number.
CLI::Validator SizeFlag(Kilo kilo);

}  // namespace tandem
