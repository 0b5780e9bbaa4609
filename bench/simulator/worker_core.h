#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "bench/simulator/digest.h"
#include "bench/simulator/timeline.h"
#include "bench/simulator/worker_config.h"
#include "bench/simulator/worker_store.h"
#include "engine/stats.h"
#include "kvstore/prefix_journal.h"
#include "kvstore/prefix_key.h"
#include "scheduler/latency_model/step_costs.h"
#include "scheduler/latency_model/step_learner.h"
#include "scheduler/scheduler.h"

namespace tandem::simulator {

// What a worker did in a run.
struct WorkerUsage {
  Duration busy{};  // in steps
  uint64_t steps = 0;
  uint64_t decodes = 0;  // sequences that decoded, of all steps together
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  uint64_t kv_bytes_sent = 0;
  int32_t peak_waiting = 0;
  int32_t peak_running = 0;
  int32_t peak_blocks = 0;  // of sequences; what only the cache holds does not count
  int32_t peak_waiting_reservations = 0;
};

// What the parts of one simulated worker share: its scheduler, its sequences, its requests.
// Thread: one at a time.
struct WorkerCore {
  WorkerCore(WorkerConfig worker, const WorkerLimits& limits, Timeline& time, Digest& events);
  WorkerCore(const WorkerCore&) = delete;
  WorkerCore& operator=(const WorkerCore&) = delete;

  static constexpr uint64_t kFingerprint = 1;  // of all simulated models
  uint64_t prefix_root() const { return config.model->layout.Fingerprint(kFingerprint); }
  // Adds what happened here, at this moment, to the digest.
  void Note(Happening happening, std::initializer_list<uint64_t> values);
  SequenceId NewId() { return SequenceId(next_id++); }
  PrefixKey KeyOf(std::span<const int32_t> prompt) const;
  // A sequence of `request`, which has none yet, without a place in the scheduler.
  std::unique_ptr<SimulatedSequence> NewSequence(const EngineRequest& request, OutputStream stream);
  SimulatedSequence& AddSequence(std::unique_ptr<SimulatedSequence> sequence);
  // Null for a request that is not here.
  SimulatedSequence* Find(RequestId request) const;
  // Frees everything first, so that the next request finds the worker in that state.
  void End(SimulatedSequence& sequence, FinishInfo info);

  Timeline& timeline;
  Digest& digest;
  WorkerConfig config;
  const SchedulerOptions options;
  // Nothing is learned, because the scheduler asks it only what copies to the host would cost.
  StepLearner learner;
  StepCosts costs;  // the worker's own, which it reports: it begins with those of the file
  Scheduler scheduler;
  std::unique_ptr<PrefixJournal> journal;  // null: what is cached is not reported
  WorkerStore store;
  absl::flat_hash_map<RequestId, SequenceId> requests;
  std::function<void(SequenceId)> ended;  // called for each sequence that has ended
  EngineStats counts;                     // its counts since the start; the rest when it publishes
  WorkerUsage usage;
  bool dead = false;  // its process has gone: it computes and answers nothing any more
  uint64_t next_id = 1;
};

}  // namespace tandem::simulator
