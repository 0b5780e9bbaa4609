#include "model/checkpoint/rope_config.h"

#include <string>
#include <string_view>

#include "base/status.h"
#include "model/checkpoint/config_ranges.h"

namespace tandem {
namespace {

constexpr Range<double> kRopeTheta{1, 1e12};
constexpr Range<double> kRopeFactor{1, 1e6};

absl::Status ReadLlama3Scaling(const FieldReader& fields, const FieldReader& scaling,
                               ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = RopeScaling::kLlama3;
  ASSIGN_OR_RETURN(rope.factor, scaling.Float("factor", kRopeFactor));
  ASSIGN_OR_RETURN(rope.low_freq_factor, scaling.Float("low_freq_factor", {1e-3, 1e6}));
  ASSIGN_OR_RETURN(rope.high_freq_factor, scaling.Float("high_freq_factor", {1e-3, 1e6}));
  if (rope.high_freq_factor <= rope.low_freq_factor) {
    return InvalidArgument("{} is {}: it must be above low_freq_factor {}",
                           scaling.Path("high_freq_factor"), rope.high_freq_factor,
                           rope.low_freq_factor);
  }
  constexpr std::string_view kOriginal = "original_max_position_embeddings";
  const FieldReader& owner = fields.Has(kOriginal) ? fields : scaling;
  ASSIGN_OR_RETURN(rope.original_max_position_embeddings,
                   owner.IntOr(kOriginal, kPositions, config.max_position_embeddings));
  return absl::OkStatus();
}

// Reads the parameters of the rotary embedding from the field `name`.
absl::Status ReadRopeObject(const FieldReader& fields, const char* name, ModelConfig& config) {
  const nlohmann::json& object = *fields.Find(name);
  if (!object.is_object()) {
    return InvalidArgument("{} is {}: it must be an object or null", name, Shown(object));
  }
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      return Unimplemented(
          "{}.{} is an object: this build computes one rotary embedding for all "
          "layers",
          name, Quoted(key));
    }
  }
  const FieldReader scaling(object, std::string(name) + ".");
  ASSIGN_OR_RETURN(config.rope.theta, scaling.FloatOr("rope_theta", kRopeTheta, config.rope.theta));
  ASSIGN_OR_RETURN(const float partial, scaling.FloatOr("partial_rotary_factor", {0, 1}, 1));
  if (partial != 1) {
    return Unimplemented("{} is {}: this build rotates whole heads",
                         scaling.Path("partial_rotary_factor"), partial);
  }
  ASSIGN_OR_RETURN(const std::string legacy_type, scaling.StringOr("type", "default"));
  ASSIGN_OR_RETURN(const std::string type, scaling.StringOr("rope_type", legacy_type));
  if (type == "default") return absl::OkStatus();
  if (type == "llama3") return ReadLlama3Scaling(fields, scaling, config);
  if (type == "linear") {
    config.rope.scaling = RopeScaling::kLinear;
    ASSIGN_OR_RETURN(config.rope.factor, scaling.Float("factor", kRopeFactor));
    return absl::OkStatus();
  }
  return Unimplemented("{} is {}: this build computes default, linear and llama3",
                       scaling.Path("rope_type"), Quoted(type));
}

}  // namespace

absl::Status ReadRope(const FieldReader& fields, ModelConfig& config) {
  ASSIGN_OR_RETURN(config.rope.theta, fields.FloatOr("rope_theta", kRopeTheta, 10000));
  ASSIGN_OR_RETURN(const float partial, fields.FloatOr("partial_rotary_factor", {0, 1}, 1));
  if (partial != 1) {
    return Unimplemented("partial_rotary_factor is {}: this build rotates whole heads", partial);
  }
  // transformers 4 writes rope_scaling and 5 writes rope_parameters; both read rope_scaling first.
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (fields.Has(name)) return ReadRopeObject(fields, name, config);
  }
  return absl::OkStatus();
}

}  // namespace tandem
