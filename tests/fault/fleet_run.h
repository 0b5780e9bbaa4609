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

// What became of a row's events.
struct RowCount {
  uint64_t scheduled = 0;
  uint64_t hit = 0;     // the fault came about at its moment
  uint64_t missed = 0;  // it did not, after several tries
};

// What became of the events of one fleet, or of all of one setup.
struct FleetReport {
  std::map<FaultRow, RowCount> rows;
  uint64_t not_run = 0;  // after something was found that leaves the fleet unfit
  uint64_t ok = 0, cancelled = 0, expired = 0, wrong = 0;  // endings of requests
  LossTimes losses;
  StatusWatch::Peaks peaks;
  v1::ResumeUse resumes;  // summed; times are the largest of the fleets
  HandoffSum handoffs;

  RowCount Total() const;
  void Add(const FleetReport& some);
};

// The events of one cluster: it is started, events are run in batches with rests between, and rows
// that did not come about are scheduled again.
class FleetRun {
 public:
  struct Options {
    FaultSetup setup = FaultSetup::kTcp;
    std::string binary;
    std::string model;
    uint64_t seed = 1;
    size_t events = 0;
    size_t at_once = 8;
    std::string only;  // rows whose name has this in it; empty: all
  };
  FleetRun(Options options, const std::vector<FaultCase>& cases, FaultFindings& findings);
  FleetReport Run();

 private:
  // False when the fleet does not come to rest afterwards.
  bool RunBatches(EventRunner& runner, Fleet& fleet, FrameDesk& desk,
                  const std::vector<FaultEvent>& events);
  void RunBatch(EventRunner& runner, Fleet& fleet, std::vector<FaultEvent> batch);
  void RunEvent(EventRunner& runner, Fleet& fleet, FaultEvent event);
  std::vector<FaultRow> RowsThatNeverCameAbout() const;

  const Options options_;
  const std::vector<FaultCase>& cases_;
  FaultFindings& findings_;
  const size_t at_once_;
  mutable absl::Mutex mutex_;
  FleetReport report_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
