#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/latency_model/link_model.h"
#include "scheduler/latency_model/step_fit.h"

namespace tandem {

// The machine, device, model and build that cost parameters were measured with. They do not hold
// for any other.
struct CostProvenance {
  std::string machine;  // what MachineName returns
  std::string device;   // such as "cpu" or "cuda:0"
  int32_t threads = 0;  // of the CPU backend
  std::string model;    // its name; not compared
  uint64_t model_fingerprint = 0;
  std::string dtype;  // of the weights
  std::string kv_dtype;
  int32_t block_tokens = 0;
  std::string build;     // version of the binary
  std::string measured;  // date; not compared
};

// A link between workers and its name: "shm", "tcp".
struct NamedLink {
  std::string name;
  LinkModel model;
};

// The six scalars by which the literature sums up a cost model.
struct ClassicScalars {
  double alpha_ms = 0;                       // per prompt token
  double beta_ms = 0;                        // a step of one decode with 512 tokens of context
  double gamma_ms = 0;                       // per prompt token beside 8 decodes
  std::optional<int32_t> batch_thresh;       // tokens; none: the step curve has no knee
  std::optional<double> bandwidth_gb_per_s;  // of the first link
  std::optional<double> setup_ms;
};

// The content of a parameter file (docs/cost_model.md).
struct CostParameters {
  CostProvenance provenance;
  StepCoefficients steps;
  std::vector<NamedLink> links;
  std::vector<FittedCoefficient> intervals;
  std::vector<ComponentError> held_out;
};

ClassicScalars ClassicOf(const StepModel& model, const std::vector<NamedLink>& links);

// Writes a parameter file as JSON. Equal parameters give equal text.
std::string WriteCostParameters(const CostParameters& parameters);

// Parses a parameter file; accepts any bytes. INVALID_ARGUMENT names the field that is missing,
// negative, not finite or out of order; FAILED_PRECONDITION means another format or version.
absl::StatusOr<CostParameters> ParseCostParameters(std::string_view text);
// The text of a parameter file. NOT_FOUND when it cannot be read, INVALID_ARGUMENT above 16 MiB.
absl::StatusOr<std::string> ReadParameterFile(const std::string& path);
// Reads and parses a parameter file. Errors name the file.
absl::StatusOr<CostParameters> LoadCostParameters(const std::string& path);

// Checks that parameters measured with `measured` hold for `here`. FAILED_PRECONDITION names the
// first thing that differs, with both values.
absl::Status CheckProvenance(const CostProvenance& measured, const CostProvenance& here);

}  // namespace tandem
