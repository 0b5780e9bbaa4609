#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "scheduler/latency_model/placement_model.h"

namespace tandem {

// Step models and states of a worker, drawn at random from a seed.
class AnyWorker {
 public:
  explicit AnyWorker(uint64_t seed) : random_(seed) {}

  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  double Share() { return std::uniform_real_distribution<double>(0, 1)(random_); }

  StepModel Steps(bool with_table) {
    StepCoefficients c;
    c.alpha = {.floor_ms = 5 * Share(),
               .base_ms = 5 * Share(),
               .token_ms = 0.1 * Share(),
               .pair_ms = with_table ? 1e-5 * Share() : 0};
    c.beta.buckets = {{.max_sequences = 4, .base_ms = 3 * Share()}};
    c.beta.buckets.push_back({.max_sequences = 64, .base_ms = 3 + Share()});
    c.beta.sequence_ms = Share();
    c.beta.context_token_ms = 1e-3 * Share();
    if (with_table) {
      c.gamma = {.tokens = {32, 256}, .sequences = {1, 8}, .context = {500, 5000}, .gamma_ms = {}};
      for (int i = 0; i < 8; ++i) c.gamma.gamma_ms.push_back(0.1 * Share());
    }
    return StepModel::Create(c).value();
  }

  // Groups of one, so that the roll is exact.
  WorkerState State(const StepModel& steps) {
    WorkerState worker;
    worker.steps = &steps;
    worker.max_step_tokens = Pick(64, 512);
    worker.max_sequences = Pick(4, 40);
    worker.available_kv_tokens = Pick(3000, 40000);
    for (int i = Pick(0, std::min(12, worker.max_sequences)); i > 0; --i) {
      worker.decoding.push_back(
          {.context_tokens = 1.0 * Pick(1, 1000), .remaining_tokens = 1.0 * Pick(1, 200)});
    }
    for (int i = Pick(0, 12); i > 0; --i) worker.waiting.push_back(Waiting());
    return worker;
  }

  WaitingGroup Waiting() {
    return {.new_tokens = Pick(1, 800),
            .cached_tokens = Pick(0, 1) * Pick(0, 300),
            .output_tokens = 1.0 * Pick(1, 150)};
  }

 private:
  std::mt19937_64 random_;
};

}  // namespace tandem
