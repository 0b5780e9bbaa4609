#include "engine/profile/kv_sensitivity_file.h"

#include <limits>

#include "base/json.h"
#include "base/status.h"
#include "kvstore/kv_layout.h"
#include "model/checkpoint/mapped_file.h"
#include "model/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kSensitivityFormat = "tandem-kv-sensitivity";
constexpr int32_t kSensitivityVersion = 1;
constexpr size_t kMaxSensitivityBytes = 1 << 20;
// Far beyond what is measured, and no float overflows or vanishes there.
constexpr Range<double> kSensitivities = {1e-30, 1e30};

absl::Status CheckSensitivityFormat(const FieldReader& reader) {
  ASSIGN_OR_RETURN(const std::string format, reader.String("format"));
  if (format != kSensitivityFormat) {
    return InvalidArgument("format is {}: it must be \"{}\"", Quoted(format), kSensitivityFormat);
  }
  ASSIGN_OR_RETURN(const int32_t version,
                   reader.Int("version", {0, std::numeric_limits<int32_t>::max()}));
  if (version == kSensitivityVersion) return absl::OkStatus();
  return InvalidArgument("version is {}: this build reads {}; run `tandem calibrate-kv` again",
                         version, kSensitivityVersion);
}

absl::StatusOr<std::vector<float>> Sensitivities(const FieldReader& reader, std::string_view name) {
  const Json* const array = reader.Find(name);
  if (array == nullptr || !array->is_array() || array->empty() || array->size() > kMaxKvLayers) {
    return InvalidArgument("{} is missing or no array of 1 to {} numbers, one for each layer",
                           reader.Path(name), kMaxKvLayers);
  }
  std::vector<float> numbers;
  for (const Json& element : *array) {
    const std::string field = fmt::format("{}[{}]", name, numbers.size());
    const Json one = {{field, element}};
    ASSIGN_OR_RETURN(numbers.emplace_back(), FieldReader(one, "").Float(field, kSensitivities));
  }
  return numbers;
}

absl::Status CheckModel(const MeasuredKvSensitivity& measured, uint64_t fingerprint,
                        int32_t num_layers) {
  if (measured.model_fingerprint != fingerprint) {
    return FailedPrecondition(
        "it was measured with model {:016x}, and here it is {:016x}: run `tandem calibrate-kv` "
        "with this model and the worker's --weights, or remove the file",
        measured.model_fingerprint, fingerprint);
  }
  if (std::ssize(measured.sensitivity.k) == num_layers) return absl::OkStatus();
  return FailedPrecondition(
      "it has numbers for {} layers, and the model has {}: run `tandem calibrate-kv` again, or "
      "remove the file",
      measured.sensitivity.k.size(), num_layers);
}

}  // namespace

std::string WriteKvSensitivity(const MeasuredKvSensitivity& measured) {
  const OrderedJson json = {
      {"format", kSensitivityFormat},
      {"version", kSensitivityVersion},
      {"model_fingerprint", fmt::format("{:016x}", measured.model_fingerprint)},
      {"k", measured.sensitivity.k},
      {"v", measured.sensitivity.v}};
  return JsonText(json, 1) + "\n";
}

absl::StatusOr<MeasuredKvSensitivity> ParseKvSensitivity(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text));
  if (!json.is_object()) return InvalidArgument("the file must hold one JSON object");
  const FieldReader reader(json, "");
  RETURN_IF_ERROR(CheckSensitivityFormat(reader));
  MeasuredKvSensitivity measured;
  ASSIGN_OR_RETURN(measured.model_fingerprint, reader.Hash("model_fingerprint"));
  ASSIGN_OR_RETURN(measured.sensitivity.k, Sensitivities(reader, "k"));
  ASSIGN_OR_RETURN(measured.sensitivity.v, Sensitivities(reader, "v"));
  if (measured.sensitivity.k.size() == measured.sensitivity.v.size()) return measured;
  return InvalidArgument("v has {} numbers, and k has {}: both need one for each layer",
                         measured.sensitivity.v.size(), measured.sensitivity.k.size());
}

absl::StatusOr<KvSensitivity> LoadKvSensitivity(const std::string& path, uint64_t fingerprint,
                                                int32_t num_layers) {
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxSensitivityBytes));
  absl::StatusOr<MeasuredKvSensitivity> measured = ParseKvSensitivity(text);
  RETURN_IF_ERROR(Annotate(measured.status(), path));
  RETURN_IF_ERROR(Annotate(CheckModel(*measured, fingerprint, num_layers), path));
  return std::move(measured->sensitivity);
}

}  // namespace tandem
