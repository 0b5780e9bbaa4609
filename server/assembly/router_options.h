#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "model/checkpoint/model_config.h"
#include "model/tokenizer/tokenizer.h"
#include "router/cluster/cluster.h"
#include "router/policy/policy_options.h"
#include "router/router.h"
#include "server/assembly/router_process_options.h"

namespace tandem {

// The model that is served, as far as a router needs to know it.
struct ServedModel {
  std::string name;
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;  // null: prompts must be token ids
};

// Reads the model's folder, or the parameter file of the simulated device. Errors name the flag or
// the file at fault. Without tokenizer.json, the model is served by token ids, and a warning is
// logged; an invalid tokenizer.json is an error.
absl::StatusOr<ServedModel> LoadServedModel(const RouterProcessOptions& options);

// INVALID_ARGUMENT when the lease is so short that a worker counts as gone after one late report.
absl::Status CheckLease(const RouterTuning& tuning);

// Translates the flags, which were checked, to the options of a router's parts.
RouterOptions RouterOptionsFor(const RouterProcessOptions& options, const ServedModel& served);
ClusterOptions ClusterOptionsFor(const RouterTuning& tuning, const std::string& model);
// The options of the routing policy. Errors are those of reading the file of classic parameters.
absl::StatusOr<PolicyOptions> PolicyOptionsFor(const RouterTuning& tuning);
// The most changes of a worker's prefix cache that one heartbeat may report.
uint32_t MostCacheChanges(const RouterTuning& tuning);

}  // namespace tandem
