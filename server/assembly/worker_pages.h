#pragma once

#include <functional>
#include <set>
#include <string>

#include "server/admin/metrics_server.h"
#include "server/admin/watchdog.h"
#include "server/tracing/process_tracing.h"
#include "tandem/v1/telemetry.pb.h"

namespace tandem {

// What the pages of a worker's admin port are made from. The functions are thread-safe; the
// references outlive the pages.
struct WorkerPageParts {
  std::string name;
  std::string role;
  std::string model;
  std::function<v1::WorkerLoad()> load;
  std::function<std::set<std::string>()> peers;  // names of the workers that KV is sent to
  std::function<bool()> draining;
  const ProcessTracing& tracing;  // outlives the pages
  const Watchdog& watchdog;
};

// The pages of a worker. It is live while its threads move, and ready while they do, a step has
// ended recently (--progress-seconds), its weights are loaded, it is not draining, and it accepts
// one more connection.
AdminPages WorkerPages(const WorkerPageParts& parts);

}  // namespace tandem
