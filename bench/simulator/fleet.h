#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/simulator/worker_config.h"

namespace tandem::simulator {

// What the steps of a worker cost in a service that runs.
struct ServedCosts {
  std::string worker;
  std::string role;  // "prefill"
  StepModel steps;
};

// What takes the place of what a parameter file says, or does not say.
struct ModelOverrides {
  std::string model_dir;  // whose KV it has, for files of `tandem profile`; empty: the file says
  int64_t kv_tokens = 0;  // 0: the file must say
  int32_t max_context_tokens = 0;  // 0: the file's
  std::optional<LinkModel> link;   // absent: the first link of the file
  // A worker has the steps of the one with its name, or else of the first with its role; empty:
  // those of its file.
  std::vector<ServedCosts> costs;
};

// So many workers of one role and one kind of machine.
struct FleetPart {
  v1::WorkerRole role = v1::WORKER_ROLE_UNIFIED;
  int32_t count = 0;
  std::string file;
};

// "prefill=4:h200.json,decode=12:h200.json". INVALID_ARGUMENT names the part that is wrong.
absl::StatusOr<std::vector<FleetPart>> ParseFleet(std::string_view text);

// Reads each file once. Errors name the file and what it lacks; FAILED_PRECONDITION when the parts
// could not serve one model together.
absl::StatusOr<std::vector<WorkerConfig>> MakeFleet(const std::vector<FleetPart>& parts,
                                                    const ModelOverrides& overrides);

// "4 prefill, 12 decode"
std::string Describe(const std::vector<FleetPart>& parts);

// Something that happens to a worker in the course of a run.
struct Disturbance {
  enum class Kind : uint8_t {
    kLose,   // its process dies
    kLeave,  // it drains: it ends its requests and takes no new ones
    kSlow,   // its steps take `factor` times as long as the model says
  };
  Kind kind = Kind::kLose;
  Duration at{};  // since the start of the run
  std::string worker;
  double factor = 1;
};

// "lose:NAME@SECONDS", "leave:NAME@SECONDS", "slow:NAME@SECONDS:FACTOR". INVALID_ARGUMENT quotes
// the text. NAME must be that of a worker of the fleet: "decode-3".
absl::StatusOr<Disturbance> ParseDisturbance(std::string_view text,
                                             const std::vector<WorkerConfig>& fleet);

}  // namespace tandem::simulator
