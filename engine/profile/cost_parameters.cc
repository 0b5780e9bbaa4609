#include "engine/profile/cost_parameters.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "model/checkpoint/strict_json.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "tandem-cost-model";
constexpr int32_t kVersion = 1;
constexpr int64_t kMaxFileBytes = int64_t{16} << 20;
constexpr size_t kMaxElements = 1 << 16;
constexpr int32_t kMaxCount = std::numeric_limits<int32_t>::max();
// The largest coefficient that is accepted. A larger one is no measurement: a step would take
// years.
constexpr double kMaxCost = 1e12;

constexpr int32_t kClassicContext = 512;
constexpr int32_t kClassicChunk = 256;
constexpr int32_t kClassicBatch = 8;

absl::StatusOr<Json> Object(const FieldReader& reader, std::string_view name) {
  const Json* const found = reader.Find(name);
  if (found != nullptr && found->is_object()) return *found;
  return InvalidArgument("{} is missing or no object", reader.Path(name));
}

absl::StatusOr<Json> Array(const FieldReader& reader, std::string_view name) {
  const Json* const found = reader.Find(name);
  if (found != nullptr && found->is_array() && found->size() <= kMaxElements) return *found;
  return InvalidArgument("{} is missing, no array, or one of more than {} elements",
                         reader.Path(name), kMaxElements);
}

absl::StatusOr<double> Cost(const FieldReader& reader, std::string_view name) {
  return reader.Double(name, {0, kMaxCost});
}

template <typename T>
absl::StatusOr<std::vector<T>> Numbers(const FieldReader& reader, std::string_view name) {
  ASSIGN_OR_RETURN(const Json array, Array(reader, name));
  std::vector<T> numbers;
  for (const Json& element : array) {
    const Json one = {{"value", element}};
    const FieldReader field(one, reader.Path(name) + "[].");
    if constexpr (std::is_same_v<T, double>) {
      ASSIGN_OR_RETURN(numbers.emplace_back(), Cost(field, "value"));
    } else {
      ASSIGN_OR_RETURN(numbers.emplace_back(), field.Int("value", {0, kMaxCount}));
    }
  }
  return numbers;
}

absl::Status Read(const Json& json, CostProvenance& provenance) {
  const FieldReader reader(json, "provenance.");
  ASSIGN_OR_RETURN(provenance.machine, reader.String("machine"));
  ASSIGN_OR_RETURN(provenance.device, reader.String("device"));
  ASSIGN_OR_RETURN(provenance.threads, reader.Int("threads", {0, kMaxCount}));
  ASSIGN_OR_RETURN(provenance.model, reader.String("model"));
  ASSIGN_OR_RETURN(provenance.model_fingerprint, reader.Hash("model_fingerprint"));
  ASSIGN_OR_RETURN(provenance.dtype, reader.String("dtype"));
  ASSIGN_OR_RETURN(provenance.kv_dtype, reader.String("kv_dtype"));
  ASSIGN_OR_RETURN(provenance.block_tokens, reader.Int("block_tokens", {1, kMaxCount}));
  ASSIGN_OR_RETURN(provenance.build, reader.String("build"));
  ASSIGN_OR_RETURN(provenance.measured, reader.String("measured"));
  return absl::OkStatus();
}

absl::Status Read(const Json& json, PrefillCost& alpha) {
  const FieldReader reader(json, "step.alpha.");
  ASSIGN_OR_RETURN(alpha.floor_ms, Cost(reader, "floor_ms"));
  ASSIGN_OR_RETURN(alpha.base_ms, Cost(reader, "a0_ms"));
  ASSIGN_OR_RETURN(alpha.token_ms, Cost(reader, "a1_ms"));
  ASSIGN_OR_RETURN(alpha.pair_ms, Cost(reader, "a2_ms"));
  return absl::OkStatus();
}

absl::Status Read(const Json& json, DecodeCost& beta) {
  const FieldReader reader(json, "step.beta.");
  ASSIGN_OR_RETURN(const Json buckets, Array(reader, "b0"));
  if (buckets.empty())
    return InvalidArgument("step.beta.b0 is empty: it needs one bucket at least");
  for (const Json& one : buckets) {
    if (!one.is_object()) return InvalidArgument("step.beta.b0 has an element that is no object");
    const FieldReader bucket(one, "step.beta.b0[].");
    DecodeCost::Bucket& read = beta.buckets.emplace_back();
    ASSIGN_OR_RETURN(read.max_sequences, bucket.Int("max_sequences", {1, kMaxCount}));
    ASSIGN_OR_RETURN(read.base_ms, Cost(bucket, "ms"));
  }
  ASSIGN_OR_RETURN(beta.sequence_ms, Cost(reader, "b1_ms"));
  ASSIGN_OR_RETURN(beta.context_token_ms, Cost(reader, "b2_ms"));
  return absl::OkStatus();
}

absl::Status Read(const Json& json, InterferenceGrid& gamma) {
  const FieldReader reader(json, "step.gamma.");
  ASSIGN_OR_RETURN(gamma.tokens, Numbers<int32_t>(reader, "tokens"));
  ASSIGN_OR_RETURN(gamma.sequences, Numbers<int32_t>(reader, "sequences"));
  ASSIGN_OR_RETURN(gamma.context, Numbers<int32_t>(reader, "context"));
  ASSIGN_OR_RETURN(gamma.gamma_ms, Numbers<double>(reader, "ms"));
  return absl::OkStatus();
}

absl::Status Read(const Json& json, StepCoefficients& steps) {
  const FieldReader reader(json, "step.");
  ASSIGN_OR_RETURN(const Json alpha, Object(reader, "alpha"));
  ASSIGN_OR_RETURN(const Json beta, Object(reader, "beta"));
  RETURN_IF_ERROR(Read(alpha, steps.alpha));
  RETURN_IF_ERROR(Read(beta, steps.beta));
  if (reader.Has("gamma")) {
    ASSIGN_OR_RETURN(const Json gamma, Object(reader, "gamma"));
    RETURN_IF_ERROR(Read(gamma, steps.gamma));
  }
  if (reader.Has("batch_thresh")) {
    ASSIGN_OR_RETURN(const Json knee, Object(reader, "batch_thresh"));
    const FieldReader fields(knee, "step.batch_thresh.");
    Knee& read = steps.batch_thresh.emplace();
    ASSIGN_OR_RETURN(read.tokens, fields.Int("tokens", {1, kMaxCount}));
    ASSIGN_OR_RETURN(read.low, fields.Int("low", {1, kMaxCount}));
    ASSIGN_OR_RETURN(read.high, fields.Int("high", {1, kMaxCount}));
  }
  return StepModel::Create(steps).status();
}

absl::Status Read(const Json& json, NamedLink& link) {
  if (!json.is_object()) return InvalidArgument("links has an element that is no object");
  const FieldReader reader(json, "links[].");
  ASSIGN_OR_RETURN(link.name, reader.String("name"));
  ASSIGN_OR_RETURN(const double setup, Cost(reader, "setup_ms"));
  ASSIGN_OR_RETURN(const double operation, Cost(reader, "operation_ms"));
  ASSIGN_OR_RETURN(const double bandwidth, reader.Double("gb_per_s", {0, kMaxCost}));
  link.model.setup = ModelTime(setup);
  link.model.operation = ModelTime(operation);
  link.model.bytes_per_second = bandwidth * 1e9;
  ASSIGN_OR_RETURN(const Json contention, Array(reader, "contention"));
  for (const Json& one : contention) {
    if (!one.is_object()) return InvalidArgument("links[].contention has no objects");
    const FieldReader point(one, "links[].contention[].");
    LinkModel::Contention& read = link.model.contention.emplace_back();
    ASSIGN_OR_RETURN(read.streams, point.Int("streams", {1, kMaxCount}));
    ASSIGN_OR_RETURN(read.total, point.Double("total", {0, kMaxCost}));
  }
  return Annotate(link.model.Validate(), "links");
}

absl::Status Read(const Json& json, FittedCoefficient& one) {
  if (!json.is_object()) return InvalidArgument("fit.intervals has an element that is no object");
  const FieldReader reader(json, "fit.intervals[].");
  ASSIGN_OR_RETURN(one.name, reader.String("name"));
  ASSIGN_OR_RETURN(one.value, Cost(reader, "value"));
  ASSIGN_OR_RETURN(one.low, Cost(reader, "low"));
  ASSIGN_OR_RETURN(one.high, Cost(reader, "high"));
  return absl::OkStatus();
}

absl::Status Read(const Json& json, ComponentError& one) {
  if (!json.is_object()) return InvalidArgument("fit.held_out has an element that is no object");
  const FieldReader reader(json, "fit.held_out[].");
  ASSIGN_OR_RETURN(one.name, reader.String("name"));
  ASSIGN_OR_RETURN(one.samples, reader.Int("samples", {0, kMaxCount}));
  ASSIGN_OR_RETURN(one.mean, Cost(reader, "mean"));
  ASSIGN_OR_RETURN(one.max, Cost(reader, "max"));
  ASSIGN_OR_RETURN(one.spread, Cost(reader, "spread"));
  return absl::OkStatus();
}

template <typename T>
absl::Status ReadAll(const FieldReader& reader, std::string_view name, std::vector<T>& all) {
  ASSIGN_OR_RETURN(const Json array, Array(reader, name));
  for (const Json& one : array) RETURN_IF_ERROR(Read(one, all.emplace_back()));
  return absl::OkStatus();
}

absl::Status CheckFormat(const FieldReader& reader) {
  ASSIGN_OR_RETURN(const std::string format, reader.String("format"));
  if (format != kFormat) {
    return FailedPrecondition("format is {}: this is no parameter file, which has \"{}\"",
                              Quoted(format), kFormat);
  }
  ASSIGN_OR_RETURN(const int32_t version, reader.Int("version", {0, kMaxCount}));
  if (version == kVersion) return absl::OkStatus();
  return FailedPrecondition("version is {}: this build reads {}; run `tandem profile` again",
                            version, kVersion);
}

OrderedJson ToJson(const CostProvenance& p) {
  return {{"machine", p.machine},
          {"device", p.device},
          {"threads", p.threads},
          {"model", p.model},
          {"model_fingerprint", fmt::format("{:016x}", p.model_fingerprint)},
          {"dtype", p.dtype},
          {"kv_dtype", p.kv_dtype},
          {"block_tokens", p.block_tokens},
          {"build", p.build},
          {"measured", p.measured}};
}

OrderedJson ToJson(const ClassicScalars& scalars) {
  OrderedJson json = {{"alpha_ms_per_token", scalars.alpha_ms},
                      {"beta_ms", scalars.beta_ms},
                      {"gamma_ms_per_token", scalars.gamma_ms}};
  const auto set = [&json](const char* name, const auto& value) {
    json[name] = value ? OrderedJson(*value) : OrderedJson();
  };
  set("batch_thresh", scalars.batch_thresh);
  set("bandwidth_gb_per_s", scalars.bandwidth_gb_per_s);
  set("setup_ms", scalars.setup_ms);
  return json;
}

OrderedJson ToJson(const StepCoefficients& c) {
  OrderedJson buckets = OrderedJson::array();
  for (const DecodeCost::Bucket& bucket : c.beta.buckets) {
    buckets.push_back({{"max_sequences", bucket.max_sequences}, {"ms", bucket.base_ms}});
  }
  OrderedJson json = {
      {"alpha",
       {{"floor_ms", c.alpha.floor_ms},
        {"a0_ms", c.alpha.base_ms},
        {"a1_ms", c.alpha.token_ms},
        {"a2_ms", c.alpha.pair_ms}}},
      {"beta",
       {{"b0", buckets}, {"b1_ms", c.beta.sequence_ms}, {"b2_ms", c.beta.context_token_ms}}},
      {"gamma", nullptr},
      {"batch_thresh", nullptr}};
  if (!c.gamma.empty()) {
    json["gamma"] = {{"tokens", c.gamma.tokens},
                     {"sequences", c.gamma.sequences},
                     {"context", c.gamma.context},
                     {"ms", c.gamma.gamma_ms}};
  }
  if (c.batch_thresh) {
    const Knee& knee = *c.batch_thresh;
    json["batch_thresh"] = {{"tokens", knee.tokens}, {"low", knee.low}, {"high", knee.high}};
  }
  return json;
}

OrderedJson ToJson(const NamedLink& link) {
  OrderedJson contention = OrderedJson::array();
  for (const LinkModel::Contention& point : link.model.contention) {
    contention.push_back({{"streams", point.streams}, {"total", point.total}});
  }
  return {{"name", link.name},
          {"setup_ms", link.model.setup.count()},
          {"operation_ms", link.model.operation.count()},
          {"gb_per_s", link.model.bytes_per_second * 1e-9},
          {"contention", contention}};
}

}  // namespace

ClassicScalars ClassicOf(const StepModel& model, const std::vector<NamedLink>& links) {
  const StepCoefficients& c = model.coefficients();
  ClassicScalars scalars;
  scalars.alpha_ms = c.alpha.token_ms;
  scalars.beta_ms = Beta(model).count();
  scalars.gamma_ms = model.GammaMs(kClassicChunk, kClassicBatch, kClassicBatch * kClassicContext);
  if (c.batch_thresh) scalars.batch_thresh = c.batch_thresh->tokens;
  if (!links.empty()) {
    scalars.bandwidth_gb_per_s = links.front().model.bytes_per_second * 1e-9;
    scalars.setup_ms = links.front().model.setup.count();
  }
  return scalars;
}

std::string WriteCostParameters(const CostParameters& parameters) {
  OrderedJson json = {{"format", kFormat}, {"version", kVersion}};
  json["provenance"] = ToJson(parameters.provenance);
  const absl::StatusOr<StepModel> model = StepModel::Create(parameters.steps);
  if (model.ok()) json["classic"] = ToJson(ClassicOf(*model, parameters.links));
  json["step"] = ToJson(parameters.steps);
  json["links"] = OrderedJson::array();
  for (const NamedLink& link : parameters.links) json["links"].push_back(ToJson(link));
  OrderedJson& fit =
      json["fit"] = {{"intervals", OrderedJson::array()}, {"held_out", OrderedJson::array()}};
  for (const FittedCoefficient& one : parameters.intervals) {
    fit["intervals"].push_back(
        {{"name", one.name}, {"value", one.value}, {"low", one.low}, {"high", one.high}});
  }
  for (const ComponentError& one : parameters.held_out) {
    fit["held_out"].push_back({{"name", one.name},
                               {"samples", one.samples},
                               {"mean", one.mean},
                               {"max", one.max},
                               {"spread", one.spread}});
  }
  return JsonText(json, 1) + "\n";
}

absl::StatusOr<CostParameters> ParseCostParameters(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text));
  if (!json.is_object()) return InvalidArgument("a parameter file holds one JSON object");
  const FieldReader reader(json, "");
  RETURN_IF_ERROR(CheckFormat(reader));
  CostParameters parameters;
  ASSIGN_OR_RETURN(const Json provenance, Object(reader, "provenance"));
  RETURN_IF_ERROR(Read(provenance, parameters.provenance));
  ASSIGN_OR_RETURN(const Json steps, Object(reader, "step"));
  RETURN_IF_ERROR(Read(steps, parameters.steps));
  RETURN_IF_ERROR(ReadAll(reader, "links", parameters.links));
  ASSIGN_OR_RETURN(const Json fit, Object(reader, "fit"));
  const FieldReader fit_reader(fit, "fit.");
  RETURN_IF_ERROR(ReadAll(fit_reader, "intervals", parameters.intervals));
  RETURN_IF_ERROR(ReadAll(fit_reader, "held_out", parameters.held_out));
  return parameters;
}

absl::StatusOr<std::string> ReadParameterFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return NotFound("the parameter file {} cannot be opened", path);
  if (file.tellg() > kMaxFileBytes) {
    return InvalidArgument("the parameter file {} is larger than {} bytes", path, kMaxFileBytes);
  }
  file.seekg(0);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (file.bad()) return NotFound("the parameter file {} cannot be read", path);
  return text;
}

absl::StatusOr<CostParameters> LoadCostParameters(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadParameterFile(path));
  absl::StatusOr<CostParameters> parameters = ParseCostParameters(text);
  if (!parameters.ok()) return Annotate(parameters.status(), path);
  return parameters;
}

absl::Status CheckProvenance(const CostProvenance& measured, const CostProvenance& here) {
  const auto differs = [](std::string_view what, const auto& then, const auto& now) {
    return FailedPrecondition(
        "the parameters were measured with {} {}, and here it is {}: run `tandem profile` here",
        what, then, now);
  };
  const CostProvenance& a = measured;
  const CostProvenance& b = here;
  if (a.machine != b.machine) return differs("machine", a.machine, b.machine);
  if (a.device != b.device) return differs("device", a.device, b.device);
  if (a.threads != b.threads) return differs("threads", a.threads, b.threads);
  if (a.model_fingerprint != b.model_fingerprint) {
    return differs("model", fmt::format("{:016x}", a.model_fingerprint),
                   fmt::format("{:016x}", b.model_fingerprint));
  }
  if (a.dtype != b.dtype) return differs("dtype", a.dtype, b.dtype);
  if (a.kv_dtype != b.kv_dtype) return differs("KV dtype", a.kv_dtype, b.kv_dtype);
  if (a.block_tokens != b.block_tokens) {
    return differs("block tokens", a.block_tokens, b.block_tokens);
  }
  if (a.build != b.build) return differs("build", a.build, b.build);
  return absl::OkStatus();
}

}  // namespace tandem
