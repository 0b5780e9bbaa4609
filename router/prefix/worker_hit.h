#pragma once

#include <cstdint>

#include "router/cluster/worker_view.h"

namespace tandem {

// What a worker is predicted to have cached of one prompt.
struct WorkerHit {
  WorkerId worker;
  int32_t tokens = 0;  // less than the prompt has
};

}  // namespace tandem
