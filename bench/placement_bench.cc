// What one decision of a cost-model policy costs: every placement that a cluster allows is predicted,
// unified on each unified worker, and prefill and decode on each pair. Half of the workers are
// unified, a quarter each prefill and decode. Each decodes 32 sequences in 8 groups and has 8
// requests waiting. Then the same with policy `auto` of a router, which finds the workers, takes the
// queues from its ledger of 32 decoding and 8 waiting requests per worker, and predicts a shortlist.
//   placement_bench [--decisions N] [--json FILE]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/flags.h"
#include "bench/result.h"
#include "nlohmann/json.hpp"
#include "router/policy/policies.h"
#include "scheduler/latency_model/placement_model.h"

namespace tandem {
namespace {

StepModel Steps() {
  StepCoefficients c;
  c.alpha = {.floor_ms = 4, .base_ms = 2, .token_ms = 0.02, .pair_ms = 1e-6};
  for (int32_t size = 1; size <= 64; size *= 2) {
    c.beta.buckets.push_back({.max_sequences = size, .base_ms = 3 + 0.01 * size});
  }
  c.beta.sequence_ms = 0.05;
  c.beta.context_token_ms = 3e-5;
  c.gamma = {.tokens = {16, 64, 128, 256, 512},
             .sequences = {1, 4, 16, 64},
             .context = {128, 1024, 4096},
             .gamma_ms = std::vector<double>(60, 0.02)};
  return StepModel::Create(std::move(c)).value();
}

class Fleet {
 public:
  explicit Fleet(int workers) : steps_(Steps()) {
    for (int i = 0; i < workers / 2; ++i) unified_.push_back(Worker());
    for (int i = 0; i < workers / 4; ++i) {
      WorkerState& prefill = prefill_.emplace_back(Worker());
      prefill.prefill_ends = PrefillEnds::kInHandOff;
      prefill.decoding.clear();
      decode_.push_back(Worker());
      decode_.back().waiting.clear();
    }
  }

  // The least end-to-end time of all placements.
  double Decide() {
    const RequestShape request = {.prompt_tokens = Pick(64, 2048), .output_tokens = 128};
    double best = 1e18;
    for (const WorkerState& worker : unified_) {
      const auto prediction = PredictUnified(worker, request, 0);
      if (prediction) best = std::min(best, prediction->e2e.count());
    }
    prefills_.clear();
    ModelTime fastest{1e18};
    for (const WorkerState& worker : prefill_) {
      prefills_.push_back(ForecastPrefill(worker, request, 0));
      if (prefills_.back()) {
        fastest = std::min(fastest, prefills_.back()->queue + prefills_.back()->prefill);
      }
    }
    for (const WorkerState& worker : decode_) {
      const auto decode = ForecastDecode(worker, request, 0, fastest);
      for (const std::optional<PrefillForecast>& prefill : prefills_) {
        if (!decode || !prefill) continue;
        best = std::min(best,
                        JoinDisaggregated(request, kv_, *prefill, *decode, link_, 2).e2e.count());
      }
    }
    return best;
  }

 private:
  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  WorkerState Worker() {
    WorkerState worker;
    worker.steps = &steps_;
    worker.max_step_tokens = 2048;
    worker.max_sequences = 256;
    worker.available_kv_tokens = 200000;
    for (int i = 0; i < 8; ++i) {
      worker.decoding.push_back({.count = 4,
                                 .context_tokens = 1.0 * Pick(100, 4000),
                                 .remaining_tokens = 1.0 * Pick(1, 500)});
      worker.waiting.push_back({.new_tokens = Pick(64, 2048), .output_tokens = 1.0 * Pick(1, 500)});
    }
    return worker;
  }

  std::mt19937 random_{1};
  StepModel steps_;
  KvTransferShape kv_{.bytes_per_token = 147456, .layers = 36, .block_tokens = 16};
  LinkModel link_{
      .setup = ModelTime(0.1), .operation = ModelTime(0.005), .bytes_per_second = 12.9e9};
  std::vector<WorkerState> unified_;
  std::vector<WorkerState> prefill_;
  std::vector<WorkerState> decode_;
  std::vector<std::optional<PrefillForecast>> prefills_;
};

// A router among as many workers of the same kind, with its policy `auto`.
class RoutedCluster {
 public:
  explicit RoutedCluster(int workers) {
    WorkerCosts costs;
    costs.steps = Steps();
    costs_ = std::make_shared<const WorkerCosts>(std::move(costs));
    for (int i = 0; i < workers / 4; ++i) Add("d", i, v1::WORKER_ROLE_DECODE, workers);
    for (int i = 0; i < workers / 4; ++i) Add("p", i, v1::WORKER_ROLE_PREFILL, workers);
    for (int i = 0; i < workers / 2; ++i) Add("u", i, v1::WORKER_ROLE_UNIFIED, workers);
  }

  // The end-to-end time that is predicted of the placement that is taken.
  double Decide() {
    const RouteQuery query = {.prompt_tokens = Pick(64, 2048), .expected_output_tokens = 128};
    const auto decision = policy_->Choose(view_, query);
    const bool is_predicted = decision.ok() && decision->score.prediction.has_value();
    return is_predicted ? decision->score.prediction->e2e.count() : 0;
  }

 private:
  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  void Add(const char* letter, int number, v1::WorkerRole role, int workers) {
    WorkerView worker;
    worker.id = {fmt::format("{}{:04}", letter, number), 1};
    worker.role = role;
    worker.costs = costs_;
    WorkerInfo info;
    info.max_context_tokens = 32768;
    info.max_step_tokens = 2048;
    info.max_sequences = 256;
    info.layout.set_num_layers(36);
    info.layout.set_num_kv_heads(8);
    info.layout.set_head_dim(128);
    info.layout.set_block_tokens(16);
    info.layout.set_dtype("bf16");
    worker.info = std::make_shared<const WorkerInfo>(info);
    v1::WorkerLoad load;
    load.set_total_blocks(25000);
    for (int i = 0; role == v1::WORKER_ROLE_PREFILL && i < workers / 4; ++i) {
      v1::LinkStatus& link = *load.add_links();
      link.set_peer(fmt::format("d{:04}", i));
      link.set_in_use(true);
      link.set_setup_us(100);
      link.set_operation_us(5);
      link.set_gb_per_s(12.9);
    }
    worker.load = std::make_shared<const v1::WorkerLoad>(load);
    for (int i = 0; i < 40; ++i) Send(worker, i >= 8);
    view_.workers.push_back(std::move(worker));
  }

  void Send(const WorkerView& worker, bool decodes) {
    using Kind = RequestPart::Kind;
    const Kind kind = worker.role == v1::WORKER_ROLE_UNIFIED   ? Kind::kUnified
                      : worker.role == v1::WORKER_ROLE_PREFILL ? Kind::kPrefill
                                                               : Kind::kDecode;
    if (decodes && kind == Kind::kPrefill) return;
    sent_.push_back(ledger_.Add(worker.id, {.kind = kind,
                                            .prompt_tokens = Pick(64, 2048),
                                            .output_tokens = 1.0 * Pick(2, 500),
                                            .most_output_tokens = 500}));
    if (kind == Kind::kPrefill) sent_.back().Send();
    if (decodes) sent_.back().AddTokens(1);
  }

  std::mt19937 random_{1};
  SteadyClock clock_;
  RequestLedger ledger_{clock_};
  std::vector<RequestLedger::Entry> sent_;
  std::shared_ptr<const WorkerCosts> costs_;
  ClusterView view_;
  std::unique_ptr<RoutingPolicy> policy_ = NewAutoPolicy({.clock = clock_, .ledger = ledger_});
};

template <typename OneCluster>
nlohmann::json Measure(int workers, int decisions) {
  OneCluster cluster(workers);
  std::vector<double> microseconds;
  double sum = 0;
  for (int i = 0; i < decisions; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    sum += cluster.Decide();
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    microseconds.push_back(took.count());
  }
  std::sort(microseconds.begin(), microseconds.end());
  const int pairs = (workers / 4) * (workers / 4);
  return {{"workers", workers},
          {"placements", workers / 2 + pairs},
          {"median_us", Median(microseconds)},
          {"p99_us", microseconds[microseconds.size() * 99 / 100]},
          {"mean_best_e2e_ms", sum / decisions}};
}

absl::Status Main(int argc, char** argv) {
  int32_t decisions = 2000;
  std::string json_path;
  FlagParser parser;
  parser.Count("--decisions", decisions);
  parser.Text("--json", json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  const nlohmann::json result = {
      {"bench", "placement"},
      {"decisions", decisions},
      {"clusters", {Measure<Fleet>(8, decisions), Measure<Fleet>(256, decisions)}},
      {"policy_auto",
       {Measure<RoutedCluster>(8, decisions), Measure<RoutedCluster>(256, decisions)}}};
  std::puts(result.dump(2).c_str());
  return WriteJson(result, json_path);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("placement_bench", tandem::Main(argc, argv));
}
