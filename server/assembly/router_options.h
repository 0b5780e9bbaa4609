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

// What is served, as far as a router needs to know it.
struct ServedModel {
  std::string name;
  ModelConfig config;
  std::unique_ptr<Tokenizer> tokenizer;  // null: prompts must be token ids
};

// Reads the model's folder, or the parameter file of the simulated device. Errors name the flag or the
// file at fault. A model without tokenizer.json is served by token ids, and a warning is logged; one whose
// file is wrong is not served.
absl::StatusOr<ServedModel> LoadServedModel(const RouterProcessOptions& options);

// INVALID_ARGUMENT where a worker would be taken for gone whose report is late by one.
absl::Status CheckLease(const RouterTuning& tuning);

// How the parts of a router are set by the flags, which were checked.
RouterOptions RouterOptionsFor(const RouterProcessOptions& options, const ServedModel& served);
ClusterOptions ClusterOptionsFor(const RouterTuning& tuning, const std::string& model);
// Errors are those of reading the file of classic parameters.
absl::StatusOr<PolicyOptions> PolicyOptionsFor(const RouterTuning& tuning);
// How many changes of a cache one heartbeat may bring.
uint32_t MostCacheChanges(const RouterTuning& tuning);

}  // namespace tandem
