#pragma once

#include <memory>

#include "kernels/device.h"
#include "kernels/ops.h"

namespace tandem {

struct BackendOptions {
  int num_threads = 0;  // CPU backend, the calling thread included; 0: one per core it may run on
  // CUDA backend: the kernels are chosen as on a GPU of at most this compute capability (89 for
  // 8.9), so that one GPU can run those of older ones; 0: as on the GPU itself.
  int most_compute_capability = 0;
};

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Ops> ops;
};

}  // namespace tandem
