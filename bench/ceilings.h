#pragma once

#include "base/thread_pool.h"
#include "kernels/device.h"

namespace tandem {

// What this machine can do at best with so many threads: the share of it is what a rate is worth.
struct Ceilings {
  double dram_read_gbps = 0;  // 1e9 bytes per second, out of huge pages
  double fma_gflops = 0;      // f32 fused multiply-adds, two operations each
};

// Measures one ceiling per call, so that a bench can do it between its cases: on a shared machine
// the ceilings of another moment say little. Thread: one at a time.
class CeilingProbe {
 public:
  // num_threads 0: one per core. Takes 1 GiB, more than any cache holds, and touches all of it.
  explicit CeilingProbe(int num_threads);

  double DramReadGbps();
  double FmaGflops();

 private:
  ThreadPool pool_;
  DeviceBuffer memory_;
};

// The best of a few calls of each.
Ceilings MeasureCeilings(int num_threads);

}  // namespace tandem
