#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "bench/serving/summary.h"
#include "bench/serving/workload.h"
#include "bench/simulator/simulation.h"
#include "gtest/gtest.h"

namespace tandem::simulator {

// A small language for tests with simulated workers. All of them are of one kind: a step with a
// prompt of 1,000 tokens takes about 54 ms, one with 10 decodes about 12 ms.
inline std::shared_ptr<const WorkerModel> TestModel() {
  auto model = std::make_shared<WorkerModel>();
  model->name = "test";
  model->model = "simulated/test";
  absl::StatusOr<StepModel> steps =
      StepModel::Create({.alpha = {.floor_ms = 8, .base_ms = 4, .token_ms = 0.05, .pair_ms = 1e-6},
                         .beta = {.buckets = {{.max_sequences = 256, .base_ms = 10}},
                                  .sequence_ms = 0.1,
                                  .context_token_ms = 1e-4},
                         .gamma = {},
                         .batch_thresh = {}});
  EXPECT_TRUE(steps.ok()) << steps.status();
  model->steps = *std::move(steps);
  model->link = LinkModel{.setup = ModelTime(0.5),
                          .operation = ModelTime(0.001),
                          .bytes_per_second = 10e9,
                          .contention = {{.streams = 4, .total = 1}}};
  model->layout = {.num_layers = 32, .num_kv_heads = 8, .head_dim = 128, .block_tokens = 16};
  model->kv_tokens = 200'000;
  model->max_context_tokens = 32'768;
  return model;
}

inline void AddWorkers(v1::WorkerRole role, int count, std::vector<WorkerConfig>& fleet) {
  static const std::shared_ptr<const WorkerModel> model = TestModel();
  for (int i = 0; i < count; ++i) {
    fleet.push_back(
        {.name = std::string(Name(role)) + "-" + std::to_string(i), .role = role, .model = model});
  }
}

inline std::vector<WorkerConfig> Unified(int count) {
  std::vector<WorkerConfig> fleet;
  AddWorkers(v1::WORKER_ROLE_UNIFIED, count, fleet);
  return fleet;
}

inline std::vector<WorkerConfig> Pairs(int prefill, int decode) {
  std::vector<WorkerConfig> fleet;
  AddWorkers(v1::WORKER_ROLE_PREFILL, prefill, fleet);
  AddWorkers(v1::WORKER_ROLE_DECODE, decode, fleet);
  return fleet;
}

struct TestLoad {
  int requests = 100;
  double rate = 10;  // per second
  double burstiness = 1;
  int32_t input = 1000;
  int32_t output = 20;
  int32_t prefix = 0;  // shared by all prompts
  uint64_t seed = 1;
};

inline loadgen::Schedule ScheduleOf(const TestLoad& load) {
  loadgen::WorkloadOptions workload;
  workload.num_prompts = load.requests;
  workload.input = {.low = load.input, .high = load.input};
  workload.output = {.low = load.output, .high = load.output};
  workload.prefix_tokens = load.prefix;
  const absl::StatusOr<loadgen::Schedule> schedule = loadgen::MakeSchedule(
      workload, loadgen::ArrivalOptions{.rate = load.rate, .burstiness = load.burstiness},
      load.seed);
  EXPECT_TRUE(schedule.ok()) << schedule.status();
  return *schedule;
}

inline SimulationResult RunSimulation(const SimulationOptions& options,
                                      const loadgen::Schedule& schedule) {
  [[maybe_unused]] static const bool is_quiet = SetUpLogging("error", "simulation").ok();
  loadgen::RunCounts counts;
  absl::StatusOr<SimulationResult> result = Simulate(options, schedule, counts);
  EXPECT_TRUE(result.ok()) << result.status();
  return *std::move(result);
}

inline loadgen::Summary SummaryOf(const SimulationResult& result,
                                  const loadgen::Objectives& objectives = {}) {
  return loadgen::Summarize(result.run, {.objectives = objectives});
}

inline const WorkerOutcome& OutcomeOf(const SimulationResult& result, std::string_view name) {
  return *std::ranges::find(result.workers, name, &WorkerOutcome::name);
}

inline int64_t RequestsOnRoute(const SimulationResult& result, const std::string& route) {
  return std::ranges::count_if(result.run.records, [&route](const loadgen::RequestRecord& one) {
    return one.end.route == route;
  });
}

}  // namespace tandem::simulator
