#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "model/transformer/weight_store.h"
#include "tests/support/call_site.h"
#include "tests/support/wait_limit.h"

namespace tandem {

// Stops an engine at the start of a forward pass, so that a test can act while a step is under way.
// Thread-safe.
class StepGate {
 public:
  // Lets `steps` more begin; the one after them waits.
  void Allow(int64_t steps) {
    absl::MutexLock lock(&mutex_);
    allowed_ = steps;
    if (steps > 0) held_ = false;  // what was held is on its way
  }
  void Open() { Allow(std::numeric_limits<int64_t>::max()); }

  // Waits until a step waits.
  void AwaitHeld(CallSite line = CallSite::Current()) {
    absl::MutexLock lock(&mutex_);
    AwaitWithin(mutex_, absl::Condition(&held_), "a step at the gate", line);
  }

  // The next step that begins fails with `status`.
  void FailNext(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    next_status_ = std::move(status);
  }

  // Every step fails with `status` from now on, the one that waits first.
  void Break(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    broken_ = std::move(status);
    allowed_ = std::numeric_limits<int64_t>::max();
  }

  // On the engine thread, as a step begins.
  absl::Status Pass() {
    absl::MutexLock lock(&mutex_);
    auto may_pass = [this] {
      mutex_.AssertReaderHeld();
      return allowed_ > 0;
    };
    held_ = !may_pass();
    mutex_.Await(absl::Condition(&may_pass));
    held_ = false;
    --allowed_;
    if (!broken_.ok()) return broken_;
    return std::exchange(next_status_, absl::OkStatus());
  }

 private:
  absl::Mutex mutex_;
  int64_t allowed_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<int64_t>::max();
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status next_status_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
};

// Weights that pass a gate before each forward pass.
class GatedWeights final : public WeightStore {
 public:
  GatedWeights(WeightStore& weights, StepGate& gate) : weights_(weights), gate_(gate) {}

  absl::StatusOr<PackedMatrix> Embedding() override { return weights_.Embedding(); }
  absl::StatusOr<LayerWeights> Layer(int32_t layer) override {
    if (layer == 0) RETURN_IF_ERROR(gate_.Pass());
    return weights_.Layer(layer);
  }
  absl::StatusOr<HeadWeights> Head() override { return weights_.Head(); }
  // A recorded step would pass by the gate.
  bool addresses_are_fixed() const override { return false; }
  bool has_codes() const override { return weights_.has_codes(); }
  absl::StatusOr<bool> loaded() const override { return weights_.loaded(); }
  int64_t resident_bytes() const override { return weights_.resident_bytes(); }

 private:
  WeightStore& weights_;
  StepGate& gate_;
};

}  // namespace tandem
