#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/assembly/host_memory.h"
#include "server/assembly/loaded_model.h"
#include "server/assembly/worker_options.h"
#include "server/check/findings.h"

namespace tandem {

// A worker as it would run, without its weights.
struct InspectedWorker {
  WorkerOptions options;  // completed by what a simulated device implies
  std::unique_ptr<LoadedModel> model;
  EngineOptions engine;                   // num_blocks is the size of the pool, also on a GPU
  int64_t weight_bytes = 0;               // on the device
  HostMemoryUse memory;                   // of the host
  std::optional<StepCoefficients> steps;  // from --cost-model or a simulated device

  int64_t pool_tokens() const { return int64_t{engine.num_blocks} * engine.layout.block_tokens; }
  // How many sequences of the longest context the pool holds at a time.
  int64_t longest_sequences() const {
    return engine.num_blocks / std::max(1, engine.layout.BlocksFor(engine.max_context_tokens));
  }
};

std::string_view RoleText(Role role);  // "prefill"

// Finds out whether a worker with these options would start, as far as that shows without reading
// weights, allocating KV or listening. Returns nothing where its model or its device cannot be
// used.
std::optional<InspectedWorker> CheckWorker(const WorkerOptions& options,
                                           std::chrono::system_clock::time_point now,
                                           Findings& findings);

}  // namespace tandem
