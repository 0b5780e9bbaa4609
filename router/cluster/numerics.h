#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "router/cluster/worker_view.h"

namespace tandem {

// What decides, besides the request, which tokens a worker generates. The kind of device counts
// because a GPU, a CPU and a CPU that rounds activations give other sums.
struct Numerics {
  uint64_t model_fingerprint = 0;
  std::string kv_dtype;
  std::string device_kind;  // "cpu", "cpu-bf16", "cuda"

  friend bool operator==(const Numerics&, const Numerics&) = default;
};

Numerics NumericsOf(const WorkerRef& worker);

// The numerics that a request has begun with: those of the worker that computed its prompt and
// first token, and those of the worker that computes all further tokens. On a unified worker both
// are the same.
struct Begun {
  Numerics prompt;
  Numerics output;
};

// Whether `worker` continues a request with the tokens that the client would have got without the
// failure of another worker. FAILED_PRECONDITION names the worker and both values.
absl::Status CheckContinues(const WorkerRef& worker, const Begun& begun);

}  // namespace tandem
