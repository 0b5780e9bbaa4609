#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/fault/fault_schedule.h"
#include "tests/fault/fleet_run.h"

namespace tandem {

struct FaultRunOptions {
  std::string binary;
  std::string model;
  uint64_t seed = 1;
  size_t events = 500;
  size_t fleets = 1;   // of each setup side by side, which share its events
  size_t setups = 2;   // side by side: most of the time is spent waiting for losses to be noticed
  size_t at_once = 8;  // requests in flight, of each fleet
  // Of the events; all together at most 1, the rest is on tcp. Half of those of shm and ipc are
  // with KV held to a rate.
  double tight_share = 0.15;
  double shm_share = 0.2;
  double ipc_share = 0.2;
  std::string only;  // rows whose name has this in it; empty: all
};

struct FaultReport {
  FaultRunOptions options;
  std::map<FaultSetup, FleetReport> setups;
  double seconds = 0;
  std::vector<std::string> found;

  // Of all setups.
  FleetReport All() const;
  // Of those that are slow, or of the others.
  v1::ResumeUse Resumes(bool slow) const;
  std::string Table() const;
  std::string Json() const;
};

// One seeded run: the fleets of each setup to their end, whatever was found on others. What is
// found is also printed at once.
class FaultRun {
 public:
  explicit FaultRun(FaultRunOptions options);
  FaultReport Run();

 private:
  void PrepareCases();
  size_t EventsOf(FaultSetup setup) const;
  void RunSetups();
  void RunFleets(FaultSetup setup);
  void CheckRows();

  const FaultRunOptions options_;
  FaultFindings findings_;
  std::vector<FaultCase> cases_;
  absl::Mutex mutex_;
  FaultReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
