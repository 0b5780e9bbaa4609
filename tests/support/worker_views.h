#pragma once

#include <memory>
#include <string>

#include "router/cluster/cluster_view.h"

namespace tandem {

// An idle worker that can be used, for snapshots that a test makes by hand.
inline WorkerView MakeWorker(const std::string& name, v1::WorkerRole role) {
  WorkerView worker;
  worker.id = {name, 1};
  worker.role = role;
  return worker;
}

// Calls `change` with a copy of the worker's report, and has the worker report that.
template <typename Change>
void ChangeLoad(WorkerView& worker, const Change& change) {
  v1::WorkerLoad load = *worker.load;
  change(load);
  worker.load = std::make_shared<const v1::WorkerLoad>(load);
}

// The same for what the worker said when it registered.
template <typename Change>
void ChangeInfo(WorkerView& worker, const Change& change) {
  WorkerInfo info = *worker.info;
  change(info);
  worker.info = std::make_shared<const WorkerInfo>(info);
}

inline void SetRunning(WorkerView& worker, int32_t sequences) {
  ChangeLoad(worker, [sequences](v1::WorkerLoad& load) { load.set_running(sequences); });
}

}  // namespace tandem
