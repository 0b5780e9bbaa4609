#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tandem {

// The name of the device that `name` stands for: "cuda" for "cuda:0", and "cpu-auto" for "cpu-bf16"
// where that is faster on this processor, else for "cpu" (cpu::FasterCompute). Every other name
// stands for itself.
std::string ResolveDeviceName(std::string_view name);

// Opens "cpu", "cpu-bf16" (the CPU, which rounds activations to bf16 where weights or KV are of
// bf16, or weights of 8 bits), or "cuda:0" and so on, or what ResolveDeviceName makes one of these.
// NOT_FOUND lists the names that exist; otherwise as cuda::OpenBackend. Never falls back to another
// one.
absl::StatusOr<Backend> OpenBackend(std::string_view name, const BackendOptions& options);

// The devices of this machine.
std::vector<std::string> BackendNames();

// Whether the name is one of the CPU's, "cpu-auto" included.
bool IsCpuName(std::string_view name);

// Why "cuda:0" is not among BackendNames(): what OpenBackend says of it. OK where it is.
absl::Status GpuStatus();

}  // namespace tandem
