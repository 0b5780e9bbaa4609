#include "bench/simulator/fleet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/simulated_model.h"
#include "base/status.h"
#include "engine/simulated/simulated_device.h"
#include "router/cluster/worker_view.h"

namespace tandem::simulator {
namespace {

constexpr int32_t kMostWorkers = 1024;  // that a router takes

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

absl::StatusOr<v1::WorkerRole> RoleNamed(const std::string& name) {
  for (const v1::WorkerRole role :
       {v1::WORKER_ROLE_UNIFIED, v1::WORKER_ROLE_PREFILL, v1::WORKER_ROLE_DECODE}) {
    if (name == Name(role)) return role;
  }
  return InvalidArgument("--fleet: {} is no role: use unified, prefill or decode", name);
}

absl::StatusOr<FleetPart> ParsePart(const std::string& text) {
  const std::vector<std::string> sides = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const std::vector<std::string> words =
      absl::StrSplit(sides.size() == 2 ? sides[1] : "", absl::MaxSplits(':', 1));
  FleetPart part;
  if (words.size() != 2 || words[1].empty() || !absl::SimpleAtoi(words[0], &part.count)) {
    return InvalidArgument("--fleet: {} is not of the form ROLE=COUNT:FILE, as decode=4:h200.json",
                           text);
  }
  ASSIGN_OR_RETURN(part.role, RoleNamed(sides[0]));
  if (part.count < 1 || part.count > kMostWorkers) {
    return InvalidArgument("--fleet: {} has {} workers: give 1 to {}", text, part.count,
                           kMostWorkers);
  }
  part.file = words[1];
  return part;
}

absl::Status CheckRoles(const std::vector<FleetPart>& parts) {
  const auto has = [&parts](v1::WorkerRole role) {
    return std::ranges::find(parts, role, &FleetPart::role) != parts.end();
  };
  const bool prefill = has(v1::WORKER_ROLE_PREFILL);
  const bool decode = has(v1::WORKER_ROLE_DECODE);
  if (prefill == decode) return absl::OkStatus();
  return InvalidArgument("--fleet has {} workers and no {} workers: they work in pairs",
                         prefill ? "prefill" : "decode", prefill ? "decode" : "prefill");
}

absl::StatusOr<int64_t> KvTokensOf(const std::string& path, const SimulatedDevice& device,
                                   const ModelOverrides& overrides) {
  const int64_t tokens = overrides.kv_tokens > 0 ? overrides.kv_tokens : device.kv_tokens;
  if (tokens == 0) {
    return InvalidArgument("{} does not say how many tokens its KV pool holds: give --kv-tokens",
                           path);
  }
  const int64_t most = int64_t{device.kv.block_tokens} * std::numeric_limits<int32_t>::max();
  if (tokens >= device.kv.block_tokens && tokens <= most) return tokens;
  return InvalidArgument("{}: a KV pool of {} tokens: must be from one block of {} tokens to {}",
                         path, tokens, device.kv.block_tokens, most);
}

absl::StatusOr<std::shared_ptr<const WorkerModel>> LoadModel(const std::string& path,
                                                             const ModelOverrides& overrides) {
  ASSIGN_OR_RETURN(const SimulatedDevice device, LoadSimulatedDevice(path, overrides.model_dir));
  auto model = std::make_shared<WorkerModel>();
  model->name = device.name;
  model->model = std::string(kSimulatedModelPrefix) + device.parameters.provenance.model;
  ASSIGN_OR_RETURN(model->steps, StepModel::Create(device.parameters.steps));
  if (!device.parameters.links.empty()) model->link = device.parameters.links.front().model;
  if (overrides.link) model->link = overrides.link;
  model->layout = device.kv;
  ASSIGN_OR_RETURN(model->kv_tokens, KvTokensOf(path, device, overrides));
  model->max_context_tokens =
      overrides.max_context_tokens > 0 ? overrides.max_context_tokens : device.max_context_tokens;
  if (device.max_step_tokens > 0) model->max_step_tokens = device.max_step_tokens;
  if (device.max_sequences > 0) model->max_sequences = device.max_sequences;
  return std::shared_ptr<const WorkerModel>(std::move(model));
}

// The model with the steps that such a worker of a service reported.
absl::StatusOr<std::shared_ptr<const WorkerModel>> WithServedCosts(
    std::shared_ptr<const WorkerModel> model, const std::string& worker, v1::WorkerRole role,
    const std::vector<ServedCosts>& costs) {
  if (costs.empty()) return model;
  auto found = std::ranges::find_if(costs, [&](const ServedCosts& one) {
    return one.worker == worker && one.role == Name(role);
  });
  if (found == costs.end()) found = std::ranges::find(costs, Name(role), &ServedCosts::role);
  if (found == costs.end()) {
    return InvalidArgument(
        "--costs-of: no {} worker of the service reports what its steps cost, which {} needs",
        Name(role), worker);
  }
  auto served = std::make_shared<WorkerModel>(*model);
  served->steps = found->steps;
  return std::shared_ptr<const WorkerModel>(std::move(served));
}

absl::Status CheckAgrees(const WorkerModel& model, const WorkerModel& other) {
  if (model.model == other.model) return absl::OkStatus();
  return FailedPrecondition("{} is of model {}, and {} of model {}: a router serves one model",
                            other.name, other.model, model.name, model.model);
}

}  // namespace

absl::StatusOr<std::vector<FleetPart>> ParseFleet(std::string_view text) {
  std::vector<FleetPart> parts;
  int64_t workers = 0;
  for (const absl::string_view word : absl::StrSplit(ToAbsl(text), ',', absl::SkipEmpty())) {
    ASSIGN_OR_RETURN(parts.emplace_back(), ParsePart(std::string(word)));
    workers += parts.back().count;
  }
  if (parts.empty()) {
    return InvalidArgument("--fleet is empty: give ROLE=COUNT:FILE, as unified=2:h200.json");
  }
  if (workers > kMostWorkers) {
    return InvalidArgument("--fleet has {} workers; a router takes {}", workers, kMostWorkers);
  }
  RETURN_IF_ERROR(CheckRoles(parts));
  return parts;
}

absl::StatusOr<std::vector<WorkerConfig>> MakeFleet(const std::vector<FleetPart>& parts,
                                                    const ModelOverrides& overrides) {
  std::map<std::string, std::shared_ptr<const WorkerModel>> models;
  std::map<v1::WorkerRole, int> numbers;
  std::vector<WorkerConfig> fleet;
  for (const FleetPart& part : parts) {
    std::shared_ptr<const WorkerModel>& model = models[part.file];
    if (model == nullptr) {
      ASSIGN_OR_RETURN(model, LoadModel(part.file, overrides));
    }
    if (!fleet.empty()) RETURN_IF_ERROR(CheckAgrees(*fleet.front().model, *model));
    if (part.role == v1::WORKER_ROLE_PREFILL && !model->link) {
      return InvalidArgument(
          "{} has no link, over which prefill workers send KV: profile one, or give "
          "--link-gb-per-s",
          part.file);
    }
    for (int32_t i = 0; i < part.count; ++i) {
      std::string name = fmt::format("{}-{}", Name(part.role), numbers[part.role]++);
      ASSIGN_OR_RETURN(std::shared_ptr<const WorkerModel> served,
                       WithServedCosts(model, name, part.role, overrides.costs));
      fleet.push_back({.name = std::move(name), .role = part.role, .model = std::move(served)});
    }
  }
  return fleet;
}

std::string Describe(const std::vector<FleetPart>& parts) {
  std::string text;
  for (const FleetPart& part : parts) {
    text += fmt::format("{}{} {} ({})", text.empty() ? "" : ", ", part.count, Name(part.role),
                        part.file);
  }
  return text;
}

absl::StatusOr<Disturbance> ParseDisturbance(std::string_view text,
                                             const std::vector<WorkerConfig>& fleet) {
  constexpr double kLongestSeconds = 1e8;
  constexpr double kMostFactor = 1e6;
  const absl::Status malformed = InvalidArgument(
      "--disturb {}: give lose:NAME@SECONDS, leave:NAME@SECONDS or slow:NAME@SECONDS:FACTOR", text);
  const std::vector<std::string> sides = absl::StrSplit(ToAbsl(text), absl::MaxSplits('@', 1));
  if (sides.size() != 2) return malformed;
  const std::vector<std::string> what = absl::StrSplit(sides[0], absl::MaxSplits(':', 1));
  const std::vector<std::string> when = absl::StrSplit(sides[1], ':');
  Disturbance disturbance;
  double seconds = 0;
  if (what.size() != 2 || !absl::SimpleAtod(when[0], &seconds) ||
      !(seconds >= 0 && seconds <= kLongestSeconds)) {
    return malformed;
  }
  disturbance.worker = what[1];
  disturbance.at = Duration(std::llround(seconds * 1e9));
  if (what[0] == "slow") {
    disturbance.kind = Disturbance::Kind::kSlow;
    if (when.size() != 2 || !absl::SimpleAtod(when[1], &disturbance.factor) ||
        !(disturbance.factor > 0 && disturbance.factor <= kMostFactor)) {
      return malformed;
    }
  } else if ((what[0] == "lose" || what[0] == "leave") && when.size() == 1) {
    disturbance.kind = what[0] == "lose" ? Disturbance::Kind::kLose : Disturbance::Kind::kLeave;
  } else {
    return malformed;
  }
  if (std::ranges::find(fleet, disturbance.worker, &WorkerConfig::name) != fleet.end()) {
    return disturbance;
  }
  return InvalidArgument("--disturb {}: the fleet has no worker {}", text, disturbance.worker);
}

}  // namespace tandem::simulator
