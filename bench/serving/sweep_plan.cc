#include "bench/serving/sweep_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "bench/serving/sweep_workload.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

constexpr int kMostWorkers = 64;  // of one role, as `tandem up`
constexpr int32_t kLeastContext = 64;
constexpr int32_t kMostContext = 1 << 20;
constexpr int32_t kMostRequests = 10'000'000;

bool IsFileName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

absl::Status SetWorkers(const std::string& part, SweepStrategy& strategy) {
  const std::vector<std::string> words = absl::StrSplit(part, '=');
  int* const role = words[0] == "prefill"   ? &strategy.prefill
                    : words[0] == "decode"  ? &strategy.decode
                    : words[0] == "unified" ? &strategy.unified
                                            : nullptr;
  if (role != nullptr && words.size() == 2 && absl::SimpleAtoi(words[1], role) && *role >= 0 &&
      *role <= kMostWorkers) {
    return absl::OkStatus();
  }
  return InvalidArgument("\"{}\": give prefill, decode or unified = a number up to {}", part,
                         kMostWorkers);
}

// A policy without a route would refuse every request.
absl::Status CheckRoutes(const SweepStrategy& strategy) {
  if (strategy.unified > 0 || (strategy.prefill > 0 && strategy.decode > 0)) {
    return absl::OkStatus();
  }
  return InvalidArgument("give a unified worker, or a prefill worker and a decode worker");
}

absl::StatusOr<SweepStrategy> Parse(const std::string& text,
                                    const std::vector<std::string>& policies) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 3) return InvalidArgument("give NAME:POLICY:ROLE=COUNT,...");
  SweepStrategy strategy = {.name = parts[0], .policy = parts[1]};
  if (!IsFileName(strategy.name)) {
    return InvalidArgument("the name \"{}\" may have letters, digits and - only", strategy.name);
  }
  if (std::find(policies.begin(), policies.end(), strategy.policy) == policies.end()) {
    return InvalidArgument("the policy {} is none of {}", strategy.policy,
                           fmt::join(policies, ", "));
  }
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(parts[2], ','))) {
    RETURN_IF_ERROR(SetWorkers(part, strategy));
  }
  RETURN_IF_ERROR(CheckRoutes(strategy));
  return strategy;
}

absl::Status CheckStrategies(const std::vector<SweepStrategy>& strategies) {
  std::set<std::string> names;
  for (const SweepStrategy& strategy : strategies) {
    if (!names.insert(strategy.name).second) {
      return InvalidArgument("--strategy {}: the name is given twice", strategy.name);
    }
    if (strategy.workers() != strategies[0].workers()) {
      return InvalidArgument(
          "--strategy {} has {} workers and {} has {}: only equal resources can be compared",
          strategy.name, strategy.workers(), strategies[0].name, strategies[0].workers());
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckList(const char* flag, const std::vector<T>& values) {
  if (values.empty()) return InvalidArgument("{}: give at least one", flag);
  const std::set<T> unique(values.begin(), values.end());
  if (unique.size() == values.size()) return absl::OkStatus();
  return InvalidArgument("{}={}: one is given twice", flag, fmt::join(values, ","));
}

absl::Status CheckRates(const char* flag, const std::vector<double>& rates) {
  RETURN_IF_ERROR(CheckList(flag, rates));
  for (const double rate : rates) {
    if (!(rate >= 1e-3 && rate <= 1e6)) {
      return InvalidArgument("{}: {} is no number of requests per second from 0.001 to 1e6", flag,
                             rate);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckWorkloads(const SweepPlan& plan) {
  RETURN_IF_ERROR(CheckList("--workloads", plan.workloads));
  for (const std::string& workload : plan.workloads) {
    RETURN_IF_ERROR(MakeSweepSchedule(workload, {.requests = 1}).status());
    const bool has_own = plan.rates_of.contains(workload);
    RETURN_IF_ERROR(CheckRates(has_own ? "--rates-of" : "--rates", RatesOf(plan, workload)));
  }
  for (const auto& [workload, rates] : plan.rates_of) {
    if (std::find(plan.workloads.begin(), plan.workloads.end(), workload) == plan.workloads.end()) {
      return InvalidArgument("--rates-of {}: the workload is not among {}", workload,
                             fmt::join(plan.workloads, ", "));
    }
  }
  return absl::OkStatus();
}

absl::Status MalformedRatesOf(const std::string& text) {
  return InvalidArgument("--rates-of {}: give WORKLOAD=RATE,RATE,..., as short=10,20", text);
}

// The fastest rate decides.
absl::Status CheckSeconds(const SweepPlan& plan) {
  double fastest = 0;
  for (const std::string& workload : plan.workloads) {
    for (const double rate : RatesOf(plan, workload)) fastest = std::max(fastest, rate);
  }
  if (plan.min_seconds >= 0 && fastest * plan.min_seconds <= kMostRequests) return absl::OkStatus();
  return InvalidArgument("--min-seconds={}: give a time in which {} requests/s are at most {}",
                         plan.min_seconds, fastest, kMostRequests);
}

absl::Status CheckNumber(const char* flag, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("{}={}: give a number from {} to {}", flag, value, low, high);
}

}  // namespace

absl::StatusOr<SweepStrategy> ParseStrategy(const std::string& text,
                                            const std::vector<std::string>& policies) {
  absl::StatusOr<SweepStrategy> strategy = Parse(text, policies);
  if (strategy.ok()) return strategy;
  return InvalidArgument("--strategy {}: {}", text, std::string(strategy.status().message()));
}

std::vector<SweepStrategy> UsualStrategies(int workers, const std::vector<std::string>& policies) {
  constexpr char kBalancing[] = "least-loaded";
  std::vector<SweepStrategy> strategies = {
      {.name = fmt::format("unified-{}", workers), .policy = kBalancing, .unified = workers}};
  for (int prefill = 1; prefill < workers; ++prefill) {
    strategies.push_back({.name = fmt::format("split-{}-{}", prefill, workers - prefill),
                          .policy = kBalancing,
                          .prefill = prefill,
                          .decode = workers - prefill});
  }
  if (workers < 3) return strategies;
  for (const std::string& policy : policies) {
    strategies.push_back(
        {.name = policy, .policy = policy, .prefill = 1, .decode = 1, .unified = workers - 2});
  }
  return strategies;
}

const std::vector<double>& RatesOf(const SweepPlan& plan, const std::string& workload) {
  const auto own = plan.rates_of.find(workload);
  return own == plan.rates_of.end() ? plan.rates : own->second;
}

int32_t RequestsOf(const SweepPlan& plan, double rate) {
  return std::max(plan.requests, static_cast<int32_t>(std::ceil(rate * plan.min_seconds)));
}

absl::Status ParseRatesOf(const std::string& text, SweepPlan& plan) {
  const std::vector<std::string> sides = absl::StrSplit(text, '=');
  std::vector<double> rates;
  if (sides.size() == 2) {
    for (const absl::string_view word : absl::StrSplit(sides[1], ',')) {
      if (!absl::SimpleAtod(word, &rates.emplace_back())) return MalformedRatesOf(text);
    }
  }
  if (rates.empty()) return MalformedRatesOf(text);
  if (plan.rates_of.emplace(sides[0], std::move(rates)).second) return absl::OkStatus();
  return InvalidArgument("--rates-of {}: the workload is given twice", text);
}

absl::Status Validate(const SweepPlan& plan) {
  RETURN_IF_ERROR(CheckNumber("--num-prompts", plan.requests, 1, kMostRequests));
  RETURN_IF_ERROR(CheckNumber("--context", plan.context_tokens, kLeastContext, kMostContext));
  if (plan.strategies.empty()) return InvalidArgument("--strategy: give at least one");
  RETURN_IF_ERROR(CheckStrategies(plan.strategies));
  RETURN_IF_ERROR(CheckWorkloads(plan));
  RETURN_IF_ERROR(CheckSeconds(plan));
  RETURN_IF_ERROR(CheckList("--seeds", plan.seeds));
  if (plan.objectives.any()) return absl::OkStatus();
  return InvalidArgument(
      "--goodput: a sweep compares goodput: give objectives as ttft:500 tpot:50");
}

std::vector<SweepPoint> PointsOf(const SweepPlan& plan) {
  std::vector<SweepPoint> points;
  for (const std::string& workload : plan.workloads) {
    for (const double rate : RatesOf(plan, workload)) {
      for (const uint64_t seed : plan.seeds) {
        for (const SweepStrategy& strategy : plan.strategies) {
          points.push_back({strategy, workload, rate, seed});
        }
      }
    }
  }
  return points;
}

nlohmann::ordered_json KeyOf(const SweepPlan& plan, const SweepPoint& point) {
  const auto objective = [](const std::optional<double>& ms) {
    return ms ? nlohmann::ordered_json(*ms) : nlohmann::ordered_json(nullptr);
  };
  return {{"strategy", point.strategy.name},
          {"policy", point.strategy.policy},
          {"prefill", point.strategy.prefill},
          {"decode", point.strategy.decode},
          {"unified", point.strategy.unified},
          {"workload", point.workload},
          {"rate", point.rate},
          {"seed", point.seed},
          {"requests", RequestsOf(plan, point.rate)},
          {"context_tokens", plan.context_tokens},
          {"ttft_ms", objective(plan.objectives.ttft)},
          {"tpot_ms", objective(plan.objectives.tpot)},
          {"e2el_ms", objective(plan.objectives.e2e)},
          {"arguments", plan.arguments},
          {"build", plan.build}};
}

std::string FileNameOf(const SweepPoint& point) {
  return fmt::format("{}_{}rps_seed{}_{}.json", point.workload, point.rate, point.seed,
                     point.strategy.name);
}

}  // namespace tandem::loadgen
