#pragma once

#include "gtest/gtest.h"
#include "scheduler/latency_model/placement_model.h"

namespace tandem::placement_model {

// A step of prefills takes 10 + 0.1 N ms, one of decodes 10 + B + 0.001 C ms.
class PlacementModelTest : public ::testing::Test {
 protected:
  PlacementModelTest() {
    StepCoefficients c;
    c.alpha = {.floor_ms = 0, .base_ms = 10, .token_ms = 0.1, .pair_ms = 0};
    c.beta = {.buckets = {{.max_sequences = 64, .base_ms = 10}},
              .sequence_ms = 1,
              .context_token_ms = 1e-3};
    steps_ = StepModel::Create(c).value();
  }

  WorkerState Idle() const {
    WorkerState worker;
    worker.steps = &steps_;
    worker.available_kv_tokens = 100000;
    return worker;
  }
  WorkerState TwoDecodes() const {
    WorkerState worker = Idle();
    worker.decoding = {{.count = 2, .context_tokens = 500, .remaining_tokens = 1000}};
    return worker;
  }
  WorkerState IdlePrefill() const {
    WorkerState worker = Idle();
    worker.prefill_ends = PrefillEnds::kInHandOff;
    return worker;
  }

  StepModel steps_;
  LinkModel link_{.setup = ModelTime(2), .operation = ModelTime(0.01), .bytes_per_second = 1e6};
  KvTransferShape kv_{.bytes_per_token = 100, .layers = 10, .block_tokens = 16};
};

// How far a prediction may be from the same sum by hand, in milliseconds.
inline constexpr double kExact = 1e-9;

}  // namespace tandem::placement_model
