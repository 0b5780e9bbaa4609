#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tandem {

// Opens "cpu", "cpu-bf16" (the CPU, which rounds activations to bf16 where weights are of bf16 or of 8 bits), or
// "cuda:0" and so on ("cuda" is "cuda:0"). NOT_FOUND lists the names that exist;
// otherwise as cuda::OpenBackend. Never falls back to another one.
absl::StatusOr<Backend> OpenBackend(std::string_view name, const BackendOptions& options);

// The names that OpenBackend takes on this machine.
std::vector<std::string> BackendNames();

// Whether the name is one of the CPU's.
bool IsCpuName(std::string_view name);

// Why "cuda:0" is not among them: what OpenBackend says of it. OK where it is.
absl::Status GpuStatus();

}  // namespace tandem
