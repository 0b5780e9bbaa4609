// What the KV store saves and what it costs, in a unified engine of this process:
//   kvstore_bench [--model DIR] [--threads T] [--rounds N] [--json FILE]
// prefix:   100 requests of 1,600 tokens, of which they share the first 1,500, with the prefix
// cache
//           and without it; together, and one at a time.
// crowded:  a mixture of prompts and outputs, of which nobody knows how long they become, in a pool
//           for all of them and in one for a third of what they hold at the most: with preemption
//           by computing again alone, and with a host tier to swap to.
// returning: 64 prompts that come again and again, of which the pool has room for 12, and a host tier of
//           fixed size for some of the rest: as many as fit there raw or encoded.
// Within a round all variants run one after the other; ratios are medians over the rounds. Answers
// must be equal in all variants.

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/flags.h"
#include "bench/kvstore_loads.h"
#include "bench/result.h"
#include "bench/serving_run.h"
#include "model/checkpoint/model_config.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

struct Flags {
  KvLoadOptions load;
  std::string json_path;
  int32_t rounds = 3;
};

Json ToJson(const ServingResult& result, const ServingLoad& load) {
  const EngineStats& stats = result.stats;
  return {{"blocks", load.options.num_blocks},
          {"seconds", result.seconds},
          {"output_tokens_per_s", static_cast<double>(stats.output_tokens) / result.seconds},
          {"ttft_ms_median", Median(result.ttft_ms)},
          {"prefill_tokens", stats.prompt_tokens},
          {"output_tokens", stats.output_tokens},
          {"hit_tokens", stats.kv.hit_tokens},
          {"most_used_blocks", stats.most_used_blocks},
          {"preempted_recompute", stats.scheduler.preempted_recompute},
          {"preempted_swap", stats.scheduler.preempted_swap},
          {"swapped_out_blocks", stats.kv.swapped_out_blocks},
          {"swapped_in_blocks", stats.kv.swapped_in_blocks},
          {"host_copied_blocks", stats.host_copied_blocks},
          {"host_raw_bytes", stats.kv.host_raw_bytes},
          {"host_stored_bytes", stats.kv.host_stored_bytes},
          {"host_unfit_blocks", stats.kv.host_unfit_blocks},
          {"host_dropped_blocks", stats.kv.host_dropped_blocks},
          {"host_copy_ms", ToMilliseconds(stats.host_copy_time)}};
}

// The variants of one round, whose answers must be those of the first.
class Round {
 public:
  absl::Status Add(const std::string& name, const ServingLoad& load) {
    auto result = Serve(load);
    if (!result.ok()) return Annotate(result.status(), name);
    if (expected_.empty()) expected_ = result->answers;
    if (result->answers != expected_) return Internal("{}: its answers are others", name);
    variants_[name] = ToJson(*result, load);
    std::printf("%-28s %7.2f s  ttft %8.1f ms  prefill %7lld  %7.0f tokens/s\n", name.c_str(),
                result->seconds, Median(result->ttft_ms),
                static_cast<long long>(result->stats.prompt_tokens),
                variants_[name]["output_tokens_per_s"].get<double>());
    std::fflush(stdout);
    return absl::OkStatus();
  }
  const Json& variants() const { return variants_; }

 private:
  Json variants_ = Json::object();
  std::vector<std::vector<int32_t>> expected_;
};

absl::StatusOr<Json> RunPrefix(const KvLoadOptions& options) {
  Round round;
  ServingLoad load = PrefixLoad(options);
  for (const Arrivals arrivals : {Arrivals::kTogether, Arrivals::kOneAtATime}) {
    load.arrivals = arrivals;
    const std::string name =
        arrivals == Arrivals::kTogether ? "prefix, together" : "prefix, one at a time";
    load.options.prefix_caching = PrefixCaching::kOff;
    RETURN_IF_ERROR(round.Add(name + ", off", load));
    load.options.prefix_caching = PrefixCaching::kOn;
    RETURN_IF_ERROR(round.Add(name + ", on", load));
  }
  return round.variants();
}

// The demand is what the sequences hold at the most when there is room for all.
absl::StatusOr<Json> RunCrowded(const KvLoadOptions& options) {
  constexpr int64_t kHostBytes = int64_t{512} << 20;
  Round round;
  ServingLoad load = CrowdedLoad(options);
  RETURN_IF_ERROR(round.Add("crowded, room for all", load));
  load.options.num_blocks =
      round.variants()["crowded, room for all"]["most_used_blocks"].get<int32_t>() / 3;
  RETURN_IF_ERROR(round.Add("crowded, a third", load));
  load.options.host_bytes = kHostBytes;
  RETURN_IF_ERROR(round.Add("crowded, a third and a host", load));
  return round.variants();
}

absl::StatusOr<Json> RunReturning(const KvLoadOptions& options) {
  Round round;
  ServingLoad load = ReturningLoad(options);
  for (const CodecId codec : {CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice}) {
    load.options.host_codec = codec;
    RETURN_IF_ERROR(round.Add(fmt::format("returning, {}", CodecName(codec)), load));
  }
  return round.variants();
}

double MedianRatio(const Json& rounds, const std::string& a, const std::string& b,
                   const char* field) {
  std::vector<double> ratios;
  for (const Json& round : rounds) {
    ratios.push_back(round[a][field].get<double>() / round[b][field].get<double>());
  }
  return Median(std::move(ratios));
}

// What it took to bring one block to the host and back, and what it took to compute one: the
// prompts of the run without a cache.
double SwapMsPerBlock(const Json& round) {
  const Json& host = round["crowded, a third and a host"];
  const double blocks = host["host_copied_blocks"].get<double>();
  return blocks > 0 ? 2 * host["host_copy_ms"].get<double>() / blocks : 0;
}
double RecomputeMsPerBlock(const Json& round) {
  const Json& cold = round["prefix, one at a time, off"];
  return 1e3 * kKvBlockTokens * cold["seconds"].get<double>() /
         cold["prefill_tokens"].get<double>();
}

double MedianOver(const Json& rounds, double (*figure)(const Json& round)) {
  std::vector<double> values;
  for (const Json& round : rounds) values.push_back(figure(round));
  return Median(std::move(values));
}

Json Summarize(const Json& rounds) {
  const auto ratio = [&rounds](const char* a, const char* b, const char* field) {
    return MedianRatio(rounds, a, b, field);
  };
  const char* const off = "prefix, together, off";
  const char* const on = "prefix, together, on";
  const char* const alone_off = "prefix, one at a time, off";
  const char* const alone_on = "prefix, one at a time, on";
  const char* const room = "crowded, room for all";
  const char* const third = "crowded, a third";
  const char* const host = "crowded, a third and a host";
  const char* const speed = "output_tokens_per_s";
  return {
      {"prefill_tokens_saved", 1 - ratio(on, off, "prefill_tokens")},
      {"ttft_ratio_together", ratio(off, on, "ttft_ms_median")},
      {"ttft_ratio_one_at_a_time", ratio(alone_off, alone_on, "ttft_ms_median")},
      {"throughput_third", ratio(third, room, speed)},
      {"throughput_third_and_host", ratio(host, room, speed)},
      {"returning_hits_f3", ratio("returning, f3", "returning, raw", "hit_tokens")},
      {"returning_hits_mask_rice", ratio("returning, mask-rice", "returning, raw", "hit_tokens")},
      {"returning_seconds_mask_rice", ratio("returning, mask-rice", "returning, raw", "seconds")},
      {"swap_ms_per_block", MedianOver(rounds, SwapMsPerBlock)},
      {"recompute_ms_per_block", MedianOver(rounds, RecomputeMsPerBlock)}};
}

absl::Status Run(const Flags& flags) {
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(flags.load.model));
  KvLoadOptions load = flags.load;
  load.vocab_size = config.vocab_size;
  load.token_bytes = KvLayout{.num_layers = config.num_layers,
                              .num_kv_heads = config.num_kv_heads,
                              .head_dim = config.head_dim}
                         .BytesPerToken();
  Json rounds = Json::array();
  for (int32_t i = 0; i < flags.rounds; ++i) {
    ASSIGN_OR_RETURN(Json round, RunPrefix(load));
    ASSIGN_OR_RETURN(const Json crowded, RunCrowded(load));
    ASSIGN_OR_RETURN(const Json returning, RunReturning(load));
    round.update(crowded);
    round.update(returning);
    rounds.push_back(std::move(round));
  }
  const Json summary = Summarize(rounds);
  for (const auto& [name, value] : summary.items()) {
    std::printf("%-28s %.3f\n", name.c_str(), value.get<double>());
  }
  return WriteJson({{"model", flags.load.model},
                    {"threads", flags.load.threads},
                    {"summary", summary},
                    {"rounds", std::move(rounds)}},
                   flags.json_path);
}

absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  FlagParser parser;
  parser.Text("--model", flags.load.model);
  parser.Count("--threads", flags.load.threads, 0);
  parser.Count("--rounds", flags.rounds);
  parser.Text("--json", flags.json_path);
  RETURN_IF_ERROR(parser.Parse(argc, argv));
  return flags;
}

absl::Status Main(int argc, char** argv) {
  ASSIGN_OR_RETURN(const Flags flags, ParseFlags(argc, argv));
  return Run(flags);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  return tandem::ExitCode("kvstore_bench", tandem::Main(argc, argv));
}
