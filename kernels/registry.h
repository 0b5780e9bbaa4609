#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
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

// Opens "cpu", or "cuda:0" and so on ("cuda" is "cuda:0"). NOT_FOUND lists the names that exist;
// otherwise as cuda::OpenBackend. Never falls back to another one.
absl::StatusOr<Backend> OpenBackend(std::string_view name, const BackendOptions& options);

// The names that OpenBackend takes on this machine.
std::vector<std::string> BackendNames();

// Why "cuda:0" is not among them: what OpenBackend says of it. OK where it is.
absl::Status GpuStatus();

}  // namespace tandem
