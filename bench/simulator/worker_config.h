#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "kvstore/kv_layout.h"
#include "kvstore/kv_store.h"
#include "scheduler/latency_model/link_model.h"
#include "scheduler/latency_model/step_model.h"
#include "scheduler/options.h"
#include "tandem/v1/cluster.pb.h"

namespace tandem::simulator {

// A kind of machine with a model on it, as a parameter file describes it. Immutable.
struct WorkerModel {
  std::string name;  // of the file
  std::string model;
  StepModel steps;
  std::optional<LinkModel> link;  // to decode workers; needed for prefill workers alone
  KvLayout layout;
  int64_t kv_tokens = 0;  // of the pool
  int32_t max_context_tokens = 0;
  int32_t max_step_tokens = 2048;  // these two unless the limits say otherwise
  int32_t max_sequences = 256;
};

// The settings of a worker that do not depend on its machine; the same for all of a fleet.
struct WorkerLimits {
  // The model says how many blocks there are and, where they are 0, max_step_tokens and
  // max_sequences.
  SchedulerOptions scheduler = {.max_step_tokens = 0, .max_sequences = 0};
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  // Whether workers report what they have cached to the router's index of prefixes.
  bool report_cache = true;
  int32_t max_waiting_reservations = 256;
  Duration max_reservation_wait = std::chrono::seconds(30);
};

// The options of the scheduler of a worker with this model.
SchedulerOptions OptionsOf(const WorkerLimits& limits, const WorkerModel& model);

struct WorkerConfig {
  std::string name;
  v1::WorkerRole role = v1::WORKER_ROLE_UNIFIED;
  std::shared_ptr<const WorkerModel> model;
  double slowdown = 1;  // every step takes so many times as long as the model says
};

}  // namespace tandem::simulator
