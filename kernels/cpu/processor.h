#pragma once

#include "absl/status/status.h"

namespace tandem {

// FAILED_PRECONDITION where this processor lacks instructions that every vectorised function of
// this build uses (as in a quick build, TANDEM_QUICK): the process would die with SIGILL.
absl::Status CheckProcessor();

// Whether this processor multiplies pairs of bf16 by one instruction (AVX512_BF16).
bool HasBF16Dots();

}  // namespace tandem
