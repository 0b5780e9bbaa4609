#pragma once

#include <memory>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace tandem {

struct BackendOptions {
  int num_threads = 0;  // CPU backend, the calling thread included; 0: one per core it may run on
  // CUDA backend: kernels as a GPU of at most this compute capability (89 for 8.9) would take them,
  // so that one GPU shows those of others; 0: its own.
  int most_compute_capability = 0;
};

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

}  // namespace tandem
