#include "engine/simulated/simulated_device.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/hash.h"
#include "base/status.h"
#include "fmt/ranges.h"
#include "model/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNameBytes = 64;
constexpr size_t kMaxElements = 256;
constexpr int32_t kMaxVocab = 1 << 24;
constexpr int32_t kMaxContext = 1 << 24;
constexpr int32_t kMaxKvTokens = 1 << 30;
constexpr int32_t kMaxStepTokens = 1 << 20;
constexpr int32_t kMaxSequences = 1 << 16;

using Names = std::initializer_list<std::string_view>;

// Refuses fields with unknown names: otherwise a misspelt field would silently leave the default in
// force.
absl::Status CheckNames(const Json& object, const std::string& path, Names known) {
  if (!object.is_object()) return InvalidArgument("{} is no object", path);
  for (const auto& [name, value] : object.items()) {
    if (std::ranges::find(known, name) != known.end()) continue;
    return InvalidArgument("{}.{} is unknown; known are {}", path, Quoted(name),
                           fmt::join(known, ", "));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> Array(const Json& object, const char* name, const std::string& path) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_array() || found->size() > kMaxElements) {
    return InvalidArgument("{}.{} is missing, no array, or one of more than {} elements", path,
                           name, kMaxElements);
  }
  return *found;
}

absl::StatusOr<std::string> ReadName(const FieldReader& reader) {
  ASSIGN_OR_RETURN(std::string name, reader.String("name"));
  const auto is_good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  if (!name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, is_good)) {
    return name;
  }
  return InvalidArgument("{} is {}: it must have 1 to {} letters, digits, '-', '_' or '.'",
                         reader.Path("name"), Quoted(name), kMaxNameBytes);
}

absl::StatusOr<DType> ReadDType(const FieldReader& reader) {
  ASSIGN_OR_RETURN(const std::string name, reader.String("dtype"));
  const std::optional<DType> dtype = DTypeFromName(name);
  if (dtype && IsKvType(*dtype)) return *dtype;
  return InvalidArgument("{} is {}: it must be {}", reader.Path("dtype"), Quoted(name),
                         kKvTypeNames);
}

absl::Status Read(const Json& json, KvLayout& kv) {
  RETURN_IF_ERROR(CheckNames(json, "simulated.kv", {"layers", "kv_heads", "head_dim", "dtype"}));
  const FieldReader reader(json, "simulated.kv.");
  constexpr Range<int32_t> kCount = {1, std::numeric_limits<int32_t>::max()};
  ASSIGN_OR_RETURN(kv.num_layers, reader.Int("layers", kCount));
  ASSIGN_OR_RETURN(kv.num_kv_heads, reader.Int("kv_heads", kCount));
  ASSIGN_OR_RETURN(kv.head_dim, reader.Int("head_dim", kCount));
  ASSIGN_OR_RETURN(kv.dtype, ReadDType(reader));
  return Annotate(kv.Validate(), "simulated.kv");
}

absl::Status Read(const Json& json, OutputLengths::Bucket& bucket) {
  const std::string path = "simulated.output_lengths[]";
  RETURN_IF_ERROR(CheckNames(json, path, {"max_prompt_tokens", "quantiles"}));
  const FieldReader reader(json, path + ".");
  ASSIGN_OR_RETURN(bucket.max_prompt_tokens, reader.Int("max_prompt_tokens", {1, kMaxContext}));
  ASSIGN_OR_RETURN(const Json quantiles, Array(json, "quantiles", path));
  for (const Json& one : quantiles) {
    RETURN_IF_ERROR(CheckNames(one, path + ".quantiles[]", {"share", "tokens"}));
    const FieldReader fields(one, path + ".quantiles[].");
    OutputLengths::Quantile& quantile = bucket.quantiles.emplace_back();
    ASSIGN_OR_RETURN(quantile.share, fields.Double("share", {0, 1}));
    ASSIGN_OR_RETURN(quantile.tokens, fields.Int("tokens", {1, kMaxContext}));
  }
  return absl::OkStatus();
}

absl::Status Read(const Json& json, OutputLengths& lengths) {
  if (!json.contains("output_lengths")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json buckets, Array(json, "output_lengths", "simulated"));
  for (const Json& one : buckets) RETURN_IF_ERROR(Read(one, lengths.buckets.emplace_back()));
  return Annotate(lengths.Validate(), "simulated");
}

absl::Status ReadVocabulary(const Json& json, const FieldReader& reader, SimulatedDevice& device) {
  ASSIGN_OR_RETURN(device.vocab_size, reader.Int("vocab_size", {2, kMaxVocab}));
  if (!json.contains("eos_token_ids")) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json ids, Array(json, "eos_token_ids", "simulated"));
  for (const Json& one : ids) {
    const Json element = {{"id", one}};
    const FieldReader field(element, "simulated.eos_token_ids[].");
    ASSIGN_OR_RETURN(device.eos_token_ids.emplace_back(),
                     field.Int("id", {0, device.vocab_size - 1}));
  }
  return absl::OkStatus();
}

absl::Status Read(const Json& json, SimulatedDevice& device) {
  RETURN_IF_ERROR(
      CheckNames(json, "simulated",
                 {"name", "sources", "kv", "vocab_size", "eos_token_ids", "max_context_tokens",
                  "kv_tokens", "max_step_tokens", "max_sequences", "output_lengths"}));
  const FieldReader reader(json, "simulated.");
  ASSIGN_OR_RETURN(device.name, ReadName(reader));
  if (!json.contains("kv")) return InvalidArgument("simulated.kv is missing");
  RETURN_IF_ERROR(Read(json["kv"], device.kv));
  RETURN_IF_ERROR(ReadVocabulary(json, reader, device));
  ASSIGN_OR_RETURN(device.max_context_tokens, reader.Int("max_context_tokens", {2, kMaxContext}));
  ASSIGN_OR_RETURN(device.kv_tokens, reader.Int("kv_tokens", {1, kMaxKvTokens}));
  ASSIGN_OR_RETURN(device.max_step_tokens, reader.IntOr("max_step_tokens", {1, kMaxStepTokens}, 0));
  ASSIGN_OR_RETURN(device.max_sequences, reader.IntOr("max_sequences", {1, kMaxSequences}, 0));
  return Read(json, device.lengths);
}

// Takes the shape of the model from its configuration: a file that `tandem profile` wrote has only
// the step times.
absl::Status TakeShape(const ModelConfig& model, SimulatedDevice& device) {
  const CostProvenance& provenance = device.parameters.provenance;
  device.name = provenance.model;
  std::ranges::replace_if(
      device.name, [](char c) { return c <= ' ' || c == '/' || c > '~'; }, '-');
  device.kv = {.num_layers = model.num_layers,
               .num_kv_heads = model.num_kv_heads,
               .head_dim = model.head_dim,
               .dtype = DTypeFromName(provenance.kv_dtype).value_or(model.dtype)};
  device.max_context_tokens = model.max_position_embeddings;
  return device.kv.Validate();
}

uint64_t FingerprintOf(std::string_view text, const SimulatedDevice& device) {
  const uint64_t file = Hash64(std::as_bytes(std::span(text.data(), text.size())));
  // The hash also covers the fields that may come from the model's directory.
  const uint64_t model = Hash64(std::as_bytes(std::span(device.eos_token_ids)),
                                file + static_cast<uint64_t>(device.vocab_size));
  return std::max<uint64_t>(model, 1);
}

}  // namespace

absl::StatusOr<SimulatedDevice> ParseSimulatedDevice(std::string_view text,
                                                     const ModelConfig* model) {
  SimulatedDevice device;
  ASSIGN_OR_RETURN(device.parameters, ParseCostParameters(text));
  ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text));
  if (json.contains("simulated")) {
    RETURN_IF_ERROR(Read(json["simulated"], device));
  } else if (model != nullptr) {
    RETURN_IF_ERROR(TakeShape(*model, device));
  } else {
    return InvalidArgument(
        "simulated is missing: the file says how long steps take and not of which model; add that "
        "section (docs/simulated.md), or give the --model that was measured");
  }
  if (model != nullptr) {
    device.vocab_size = model->vocab_size;
    device.eos_token_ids = model->eos_token_ids;
  }
  device.fingerprint = FingerprintOf(text, device);
  return device;
}

absl::StatusOr<SimulatedDevice> LoadSimulatedDevice(const std::string& path,
                                                    const std::string& model_dir) {
  std::optional<ModelConfig> model;
  if (!model_dir.empty()) {
    ASSIGN_OR_RETURN(model, LoadModelConfig(model_dir));
  }
  ASSIGN_OR_RETURN(const std::string text, ReadParameterFile(path));
  absl::StatusOr<SimulatedDevice> device = ParseSimulatedDevice(text, model ? &*model : nullptr);
  if (!device.ok()) return Annotate(device.status(), path);
  return device;
}

}  // namespace tandem
