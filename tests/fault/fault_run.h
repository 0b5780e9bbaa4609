#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "tests/fault/event_runner.h"
#include "tests/fault/fault_fleet.h"
#include "tests/fault/fault_schedule.h"

namespace tandem {

struct FaultRunOptions {
  std::string binary;
  std::string model;
  uint64_t seed = 1;
  size_t events = 500;
  size_t fleets = 1;       // side by side, which share the events
  size_t at_once = 8;      // requests in flight, of each fleet
  double shm_share = 0.15;  // of the events; with ipc_share at most 1, the rest is on tcp
  double ipc_share = 0.15;
  std::string only;        // rows whose name has this in it; empty: all
};

// What became of a row's events.
struct RowCount {
  uint64_t scheduled = 0;
  uint64_t hit = 0;     // the fault came about at its moment
  uint64_t missed = 0;  // it did not, after several tries
};

struct FaultReport {
  FaultRunOptions options;
  std::map<FaultRow, RowCount> rows;
  uint64_t ok = 0, cancelled = 0, expired = 0, wrong = 0;  // endings of requests
  LossTimes losses;
  v1::ResumeUse resumes;    // summed; times are the largest of the fleets
  v1::HandoffUse handoffs;  // of the workers that live at the end
  double seconds = 0;
  std::vector<std::string> found;

  std::string Table() const;
  std::string Json() const;
};

// One seeded run: fleets, events, rests between them. Whatever is found is also printed at once.
class FaultRun {
 public:
  explicit FaultRun(FaultRunOptions options);
  FaultReport Run();

 private:
  void PrepareCases();
  void RunFleets(FaultLink link, size_t events);
  void RunFleet(FaultLink link, size_t events, uint64_t seed);
  void RunBatch(EventRunner& runner, Fleet& fleet, std::vector<FaultEvent> batch);
  void RunEvent(EventRunner& runner, FaultEvent event);
  void Add(const v1::GetStatusResponse& status);
  void CheckRows();

  const FaultRunOptions options_;
  Findings findings_;
  std::vector<FaultCase> cases_;
  absl::Mutex mutex_;
  FaultReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
