#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "router/policy/classic_model.h"

namespace tandem {

// The six scalars from the object "classic" of a parameter file of `tandem profile`, without
// bytes_per_token, which workers report. No other part of the file is read, so a file may have these
// alone:
//
//   {"classic": {"alpha_ms_per_token": 0.125, "beta_ms": 51.6, "gamma_ms_per_token": 0.087,
//                "batch_thresh": 16, "bandwidth_gb_per_s": 12.9}}
//
// Where the step curve has no knee (batch_thresh is null), 16 is taken, which both published sets of
// scalars have. INVALID_ARGUMENT names the field that is missing, negative or not finite, and says
// what to do where no link was measured.
absl::StatusOr<ClassicCoefficients> ParseClassicParameters(std::string_view text);
// Reads the six scalars, as ParseClassicParameters does, from a file of at most 16 MiB. NOT_FOUND
// when it cannot be read.
absl::StatusOr<ClassicCoefficients> LoadClassicParameters(const std::string& path);

}  // namespace tandem
