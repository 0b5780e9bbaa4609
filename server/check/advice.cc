#include "server/check/advice.h"

#include <algorithm>
#include <cmath>

#include "fmt/format.h"

namespace tandem {
namespace {

constexpr int64_t kLargestBatch = 4096;  // bounds the search for a steady state

// What one request costs a worker that has nothing else to do.
struct RequestCost {
  double prefill_ms = 0;
  double exposed_transfer_ms = 0;  // the part of the transfer that the prefill does not hide
  int64_t most_sequences = 0;      // the most that decode together on one worker
};

// The steady state of one worker's decodes.
struct DecodeState {
  double sequences = 0;
  double step_ms = 0;
};

double PrefillMs(const Workload& load, const WorkerModel& worker) {
  double sum = 0;
  for (int32_t begin = 0; begin < load.input_tokens; begin += worker.max_step_tokens) {
    const int32_t end = std::min(load.input_tokens, begin + worker.max_step_tokens);
    sum += worker.steps.StepMs(end - begin, static_cast<double>(CausalPairs(begin, end)), 0, 0);
  }
  return sum;
}

double MeanContext(const Workload& load) {
  return load.input_tokens + static_cast<double>(load.output_tokens) / 2;
}

double DecodeStepMs(const Workload& load, const WorkerModel& worker, double sequences) {
  return worker.steps.StepMs(0, 0, sequences, sequences * MeanContext(load));
}

RequestCost CostOf(const Workload& load, const WorkerModel& worker) {
  RequestCost cost = {.prefill_ms = PrefillMs(load, worker)};
  const int64_t kept_tokens = int64_t{load.input_tokens} + load.output_tokens;
  cost.most_sequences =
      std::min<int64_t>({kLargestBatch, worker.max_sequences, worker.pool_tokens / kept_tokens});
  if (worker.link) {
    const int32_t chunks =
        (load.input_tokens + worker.max_step_tokens - 1) / worker.max_step_tokens;
    const int32_t units = std::max(1, chunks * worker.num_layers);
    const ModelTime transfer =
        worker.link->Transfer(load.input_tokens * worker.kv_bytes_per_token, units, 1);
    cost.exposed_transfer_ms = ExposedTransfer(transfer, ModelTime(cost.prefill_ms), units).count();
  }
  return cost;
}

// How many sequences decode together on each of `workers`, which spend the fraction `share` of
// their time on decoding: the smallest batch that makes as many tokens per second as the load asks
// for. Nothing where no batch does.
std::optional<DecodeState> SteadyDecode(const Workload& load, const WorkerModel& worker,
                                        int64_t most_sequences, int workers, double share) {
  const double tokens_per_ms =
      load.requests_per_second * load.output_tokens / 1000 / workers / share;
  for (int64_t sequences = 1; sequences <= most_sequences; ++sequences) {
    const double step_ms = DecodeStepMs(load, worker, static_cast<double>(sequences));
    if (static_cast<double>(sequences) < tokens_per_ms * step_ms) continue;
    return DecodeState{.sequences = tokens_per_ms * step_ms, .step_ms = step_ms};
  }
  return std::nullopt;
}

// The mean time that a prompt waits in the queue of a worker (M/D/1) that spends the fraction
// `busy` of its time on prompts.
double QueueMs(double busy, double service_ms) { return busy * service_ms / (2 * (1 - busy)); }

bool Keeps(const std::optional<double>& limit_ms, double ms) {
  return !limit_ms || ms <= *limit_ms;
}

bool KeepsSlos(const Workload& load, const Deployment& deployment) {
  return Keeps(load.ttft_slo_ms, deployment.ttft_ms) && Keeps(load.tpot_slo_ms, deployment.tpot_ms);
}

double PrefillBusy(const Workload& load, const RequestCost& cost) {
  return load.requests_per_second * cost.prefill_ms / 1000;
}

// The fewest prefill and decode workers for the load. Each kind keeps one fifth of its time free
// for bursts.
std::optional<Deployment> FewestDisaggregated(const Workload& load, const WorkerModel& worker,
                                              const RequestCost& cost) {
  Deployment made;
  const double busy = PrefillBusy(load, cost);
  for (made.prefill = std::max(1, static_cast<int>(std::ceil(busy / kMostBusy)));
       made.prefill <= kMostWorkers; ++made.prefill) {
    made.ttft_ms = cost.prefill_ms + QueueMs(busy / made.prefill, cost.prefill_ms);
    if (Keeps(load.ttft_slo_ms, made.ttft_ms)) break;
  }
  for (made.decode = 1; made.decode <= kMostWorkers; ++made.decode) {
    const auto state = SteadyDecode(load, worker, cost.most_sequences, made.decode, kMostBusy);
    if (!state) continue;
    made.tpot_ms = state->step_ms + cost.exposed_transfer_ms / std::max(1, load.output_tokens - 1);
    if (Keeps(load.tpot_slo_ms, made.tpot_ms)) break;
  }
  if (made.prefill > kMostWorkers || made.decode > kMostWorkers) return std::nullopt;
  return made;
}

// The fewest unified workers for the load. Prompts delay decodes, so only the time that prefill
// leaves of a worker makes tokens.
std::optional<Deployment> FewestUnified(const Workload& load, const WorkerModel& worker,
                                        const RequestCost& cost) {
  Deployment made;
  for (made.unified = 1; made.unified <= kMostWorkers; ++made.unified) {
    const double busy = PrefillBusy(load, cost) / made.unified;
    if (busy >= kMostBusy) continue;
    const auto state =
        SteadyDecode(load, worker, cost.most_sequences, made.unified, kMostBusy - busy);
    if (!state) continue;
    made.ttft_ms = cost.prefill_ms + state->step_ms + QueueMs(busy, cost.prefill_ms);
    made.tpot_ms = state->step_ms / (1 - busy);
    if (KeepsSlos(load, made)) return made;
  }
  return std::nullopt;
}

std::string LimitText(const std::optional<double>& limit_ms) {
  return limit_ms ? fmt::format("{:.1f} ms", *limit_ms) : "none";
}

void SayCosts(const Workload& load, const WorkerModel& worker, const RequestCost& cost,
              std::vector<std::string>& lines) {
  lines.push_back(fmt::format(
      "Workload: {} prompt tokens, {} output tokens, {} requests/s; TTFT limit {}, TPOT limit {}.",
      load.input_tokens, load.output_tokens, load.requests_per_second, LimitText(load.ttft_slo_ms),
      LimitText(load.tpot_slo_ms)));
  lines.push_back(fmt::format(
      "A prompt takes {:.1f} ms in steps of at most {} tokens, so that {} requests/s fill {:.2f} "
      "workers; at most {:.0f}% of each are used.",
      cost.prefill_ms, worker.max_step_tokens, load.requests_per_second, PrefillBusy(load, cost),
      kMostBusy * 100));
  lines.push_back(
      fmt::format("A worker decodes at most {} such sequences at a time: the lesser of {} "
                  "(--max-sequences) and "
                  "{} tokens of KV / {} per request.",
                  cost.most_sequences, worker.max_sequences, worker.pool_tokens,
                  int64_t{load.input_tokens} + load.output_tokens));
  if (worker.link) {
    const double megabytes =
        static_cast<double>(load.input_tokens * worker.kv_bytes_per_token) / 1e6;
    lines.push_back(fmt::format(
        "Handing a prompt over moves {:.1f} MB, of which the prefill does not hide {:.1f} ms.",
        megabytes, cost.exposed_transfer_ms));
  } else {
    lines.push_back("No link was measured: what handing a prompt over takes is left out.");
  }
}

void SayDeployment(const Workload& load, const WorkerModel& worker, const RequestCost& cost,
                   const Deployment& made, std::vector<std::string>& lines) {
  const double prefill_busy = PrefillBusy(load, cost) / std::max(made.prefill, made.unified);
  const int decoding = std::max(made.decode, made.unified);
  const double share = made.unified > 0 ? kMostBusy - prefill_busy : kMostBusy;
  const auto state = SteadyDecode(load, worker, cost.most_sequences, decoding, share);
  const std::string who = made.unified > 0
                              ? fmt::format("{} unified", made.unified)
                              : fmt::format("{} prefill and {} decode", made.prefill, made.decode);
  lines.push_back(fmt::format(
      "{}: prompts take {:.0f}% of each worker's time and wait {:.1f} ms on average; {:.1f} "
      "sequences decode together in steps of {:.1f} ms; TTFT {:.1f} ms, TPOT {:.1f} ms.",
      who, prefill_busy * 100, QueueMs(prefill_busy, cost.prefill_ms), state ? state->sequences : 0,
      state ? state->step_ms : 0, made.ttft_ms, made.tpot_ms));
}

std::string Conclude(const Advice& advice) {
  const auto& apart = advice.disaggregated;
  const auto& together = advice.unified;
  if (!apart && !together) {
    return fmt::format(
        "No number of such workers up to {} keeps these limits: one prompt or one step alone takes "
        "longer, or one request does not fit into the KV pool. Raise the limits, or use a faster "
        "device or a larger pool.",
        kMostWorkers);
  }
  if (apart && (!together || apart->workers() < together->workers())) {
    return fmt::format(
        "Use {} prefill and {} decode workers (--prefill {} --decode {} --unified 0).",
        apart->prefill, apart->decode, apart->prefill, apart->decode);
  }
  const std::string unified =
      fmt::format("Use {0} unified worker{1} (--prefill 0 --decode 0 --unified {0})",
                  together->unified, together->unified == 1 ? "" : "s");
  if (!apart) return unified + ": prefill and decode apart cannot keep the limits.";
  return fmt::format("{}: prefill and decode apart would need {}.", unified, apart->workers());
}

}  // namespace

Advice AdviseOn(const Workload& workload, const WorkerModel& worker) {
  Advice advice;
  const RequestCost cost = CostOf(workload, worker);
  SayCosts(workload, worker, cost, advice.arithmetic);
  advice.disaggregated = FewestDisaggregated(workload, worker, cost);
  advice.unified = FewestUnified(workload, worker, cost);
  for (const auto& made : {advice.disaggregated, advice.unified}) {
    if (made) SayDeployment(workload, worker, cost, *made, advice.arithmetic);
  }
  advice.conclusion = Conclude(advice);
  return advice;
}

}  // namespace tandem
