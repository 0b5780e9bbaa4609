#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/latency_model/link_model.h"
#include "scheduler/latency_model/step_model.h"

namespace tandem {

// What clients are expected to ask for: every request alike, coming independently of one another.
struct Workload {
  int32_t input_tokens = 512;
  int32_t output_tokens = 128;
  double requests_per_second = 1;
  std::optional<double> ttft_slo_ms;
  std::optional<double> tpot_slo_ms;
};

// A worker as the latency model sees it. The link and the bytes of KV of a token are for hand-offs.
struct WorkerModel {
  StepModel steps;
  std::optional<LinkModel> link;  // nothing: what a transfer takes is not known
  int32_t num_layers = 1;
  int64_t kv_bytes_per_token = 0;
  int64_t pool_tokens = 0;
  int32_t max_step_tokens = 512;
  int32_t max_sequences = 64;
};

// Above this share of their time workers are taken for overloaded: queues grow without bound
// towards 1.
inline constexpr double kMostBusy = 0.8;

struct Deployment {
  int prefill = 0;
  int decode = 0;
  int unified = 0;
  double ttft_ms = 0;
  double tpot_ms = 0;

  int workers() const { return prefill + decode + unified; }
};

struct Advice {
  // The smallest deployment of each kind. Nothing where no number of workers up to kMostWorkers
  // keeps the SLOs.
  std::optional<Deployment> disaggregated;
  std::optional<Deployment> unified;
  std::vector<std::string> arithmetic;  // the calculation in sentences, in order
  std::string conclusion;               // which of the two deployments to use, and why
};

inline constexpr int kMostWorkers = 1024;

// The fewest workers that serve the workload within its SLOs, by closed arithmetic on the means of
// the latency model (docs/cost_model.md): prompts wait as in a queue with one server, random
// arrivals and equal times (M/D/1), and as many sequences decode together as Little's law says.
Advice AdviseOn(const Workload& workload, const WorkerModel& worker);

}  // namespace tandem
