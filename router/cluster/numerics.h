#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "router/cluster/worker_view.h"

namespace tandem {

// What decides, besides the request, which tokens a worker comes to. Of kinds of devices: sums on a
// GPU and on a CPU differ in the last bits.
struct Numerics {
  uint64_t model_fingerprint = 0;
  std::string kv_dtype;
  std::string device_kind;  // "cpu", "cuda"

  friend bool operator==(const Numerics&, const Numerics&) = default;
};

Numerics NumericsOf(const WorkerRef& worker);

// What a request began with: where its prompt was computed, and all behind the first token. Both
// are the same on a unified worker.
struct Begun {
  Numerics prompt;
  Numerics output;
};

// Whether `worker` comes to the tokens that the client would have had. FAILED_PRECONDITION names
// the worker and both values.
absl::Status CheckGoesOn(const WorkerRef& worker, const Begun& begun);

}  // namespace tandem
