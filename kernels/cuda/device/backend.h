#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

// The CUDA backend as the registry sees it. There is one implementation per build: backend.cc with
// a CUDA toolkit, absent.cc without one.

namespace tandem::cuda {

// Opens device `index` of this machine. Errors are one line that says what to do: UNIMPLEMENTED in
// a build without CUDA; FAILED_PRECONDITION without a driver, with one too old, with a GPU of an
// architecture that no kernel was compiled for, or without cuBLASLt; NOT_FOUND for an index that
// does not exist.
absl::StatusOr<Backend> OpenBackend(int index, const BackendOptions& options);

// The error that OpenBackend would end with before it touches the device's memory; OK where there
// is none.
absl::Status CheckDevice(int index);

// The names of this machine's GPUs, "cuda:0" and so on; empty where OpenBackend would fail for all.
std::vector<std::string> DeviceNames();

}  // namespace tandem::cuda
