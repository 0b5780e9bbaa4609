#include "server/assembly/classic_parameters.h"

#include <fstream>
#include <iterator>

#include "base/status.h"
#include "model/checkpoint/strict_json.h"

namespace tandem {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{16} << 20;
constexpr int32_t kPublishedBatchThresh = 16;
constexpr int32_t kMostSequences = 1 << 20;
// The longest time in milliseconds that is accepted as a measurement: about 30 years.
constexpr double kMostMs = 1e12;
constexpr double kLeast = 1e-9;

}  // namespace

absl::StatusOr<ClassicCoefficients> ParseClassicParameters(std::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json json, ParseStrictJson(text));
  if (!json.is_object() || !json.contains("classic") || !json["classic"].is_object()) {
    return InvalidArgument("it has no object \"classic\": give a parameter file of tandem profile");
  }
  const FieldReader reader(json["classic"], "classic.");
  if (!reader.Has("bandwidth_gb_per_s")) {
    return InvalidArgument(
        "classic.bandwidth_gb_per_s is missing or null: measure it with tandem profile --links on");
  }
  ClassicCoefficients c;
  ASSIGN_OR_RETURN(c.alpha_ms, reader.Double("alpha_ms_per_token", {0, kMostMs}));
  ASSIGN_OR_RETURN(c.beta_ms, reader.Double("beta_ms", {kLeast, kMostMs}));
  ASSIGN_OR_RETURN(c.gamma_ms, reader.Double("gamma_ms_per_token", {0, kMostMs}));
  ASSIGN_OR_RETURN(c.batch_thresh,
                   reader.IntOr("batch_thresh", {1, kMostSequences}, kPublishedBatchThresh));
  ASSIGN_OR_RETURN(c.bandwidth_gb_per_s, reader.Double("bandwidth_gb_per_s", {kLeast, kMostMs}));
  return c;
}

absl::StatusOr<ClassicCoefficients> LoadClassicParameters(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return NotFound("--classic-parameters={}: the file cannot be opened", path);
  if (file.tellg() > kMaxFileBytes) {
    return InvalidArgument("--classic-parameters={}: the file is larger than {} bytes", path,
                           kMaxFileBytes);
  }
  file.seekg(0);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return NotFound("--classic-parameters={}: the file cannot be read", path);
  absl::StatusOr<ClassicCoefficients> parameters = ParseClassicParameters(text);
  if (!parameters.ok()) {
    return Annotate(parameters.status(), fmt::format("--classic-parameters={}", path));
  }
  return parameters;
}

}  // namespace tandem
