#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

// What tests ask of the emulated machine. The machine itself is driven through the CUDA runtime's
// functions. Thread-safe.
namespace simt {

// All choices that the hardware would leave open follow from the seed: the order of blocks and
// warps, when queued work runs, which stream goes first.
void SetSeed(uint64_t seed);

struct DeviceConfig {
  bool missing_driver = false;
  int driver_version = 13000;  // as cudaDriverGetVersion says it; below 13000 nothing else works
  int num_devices = 1;
  int compute_capability = 90;
  size_t memory_bytes = size_t{512} << 20;
  int num_sms = 4;
  std::string name = "NVIDIA H200 (emulated)";
  bool no_file_handles = false;  // the driver exports no allocation as a file
  bool no_ipc = false;           // the runtime gives no tokens of memory
  bool refuse_imports = false;   // memory of other processes cannot be opened
};
// From here on. Call it with {} at the end of a test that changed something.
void Configure(const DeviceConfig& config);

// Since the start of the process or the last ResetCounts().
struct Counters {
  int64_t allocations = 0;              // of device and of pinned memory
  int64_t pageable_copies = 0;          // with host memory that is not pinned
  int64_t device_synchronizations = 0;  // asked for, or implied by cudaFree and the like
  int64_t stream_synchronizations = 0;
  int64_t launches = 0;       // of kernels, queued or recorded
  int64_t thread_blocks = 0;  // of all launches
  int64_t graphs_made = 0;    // each of which takes a real driver's memory
  int64_t graph_launches = 0;
  int64_t heuristics = 0;   // that cuBLASLt was asked for
  int64_t kernels_run = 0;  // replayed ones included
  int64_t copies_to_device = 0;
  int64_t copies_to_host = 0;
  int64_t copies_on_device = 0;
};
Counters Counts();
void ResetCounts();

}  // namespace simt
