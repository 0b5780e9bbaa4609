#pragma once

#include "CLI/CLI.hpp"

namespace tandem {

// Of "k": what CLI::AsSizeValue is asked for.
enum class Kilo { k1000, k1024 };

// For CLI::Option::transform: bytes with or without a unit, as 512MiB. Refuses what is below zero,
// which CLI::AsSizeValue takes for a very large number.
CLI::Validator SizeFlag(Kilo kilo);

}  // namespace tandem
