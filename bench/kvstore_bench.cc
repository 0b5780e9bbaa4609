// What the KV store saves and what it costs, in a unified engine of this process:
//   kvstore_bench [--model DIR] [--threads T] [--rounds N] [--json FILE]
// prefix:   100 requests of 1,600 tokens, of which they share the first 1,500, with the prefix
// cache
//           and without it; together, and one at a time.
// crowded:  a mixture of prompts and outputs in a pool for all of them, and in one of a third: with
//           preemption by computing again alone, and with a host tier to swap to.
// Within a round all variants run one after the other; ratios are medians over the rounds. Answers
// must be equal in all variants.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/serving_run.h"
#include "model/checkpoint/model_config.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

constexpr int32_t kBlockTokens = 16;
constexpr int32_t kSharedTokens = 1500;
constexpr int32_t kPromptTokens = 1600;
constexpr int32_t kPrefixRequests = 100;
constexpr int32_t kCrowdedRequests = 64;
constexpr int32_t kCrowdedSequences = 16;

struct Flags {
  std::string model = "models/sample";
  std::string json_path;
  int32_t threads = 0;
  int32_t rounds = 3;
};

EngineRequest Request(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  return {.id = RequestId(id),
          .prompt = std::move(prompt),
          .sampling = {.temperature = 0.8f, .seed = id},
          .max_tokens = max_tokens};
}

int32_t BlocksFor(int64_t tokens) {
  return static_cast<int32_t>((tokens + kBlockTokens - 1) / kBlockTokens);
}

ServingLoad BaseLoad(const Flags& flags) {
  ServingLoad load;
  load.model_dir = flags.model;
  load.threads = flags.threads;
  load.options.layout.block_tokens = kBlockTokens;
  return load;
}

ServingLoad PrefixLoad(const Flags& flags, int32_t vocab_size) {
  constexpr int32_t kOutput = 8;
  ServingLoad load = BaseLoad(flags);
  load.options.scheduler.max_sequences = 8;
  load.options.num_blocks = 10 * BlocksFor(kPromptTokens + kOutput);
  const std::vector<int32_t> shared = RandomTokens(1, kSharedTokens, vocab_size);
  for (uint64_t id = 1; id <= kPrefixRequests; ++id) {
    std::vector<int32_t> prompt = shared;
    const std::vector<int32_t> own =
        RandomTokens(1000 + id, kPromptTokens - kSharedTokens, vocab_size);
    prompt.insert(prompt.end(), own.begin(), own.end());
    load.requests.push_back(Request(id, std::move(prompt), kOutput));
  }
  return load;
}

// Blocks for the most that can be admitted at a time, at full length.
int32_t BlocksInDemand(const ServingLoad& load) {
  std::vector<int32_t> blocks;
  for (const EngineRequest& request : load.requests) {
    blocks.push_back(BlocksFor(static_cast<int64_t>(request.prompt.size()) + request.max_tokens));
  }
  std::sort(blocks.rbegin(), blocks.rend());
  int32_t sum = 0;
  for (int32_t i = 0; i < kCrowdedSequences; ++i) sum += blocks[i];
  return sum;
}

ServingLoad CrowdedLoad(const Flags& flags, int32_t vocab_size) {
  ServingLoad load = BaseLoad(flags);
  load.options.scheduler.max_sequences = kCrowdedSequences;
  for (uint64_t id = 1; id <= kCrowdedRequests; ++id) {
    const auto prompt = static_cast<int32_t>(32 + id * 97 % 480);
    const auto output = static_cast<int32_t>(32 + id * 61 % 352);
    load.requests.push_back(Request(id, RandomTokens(id, prompt, vocab_size), output));
  }
  load.options.num_blocks = BlocksInDemand(load);
  return load;
}

Json ToJson(const ServingResult& result, const ServingLoad& load) {
  const EngineStats& stats = result.stats;
  return {{"blocks", load.options.num_blocks},
          {"seconds", result.seconds},
          {"output_tokens_per_s", static_cast<double>(stats.output_tokens) / result.seconds},
          {"ttft_ms_median", Median(result.ttft_ms)},
          {"prefill_tokens", stats.prompt_tokens},
          {"output_tokens", stats.output_tokens},
          {"hit_tokens", stats.kv.hit_tokens},
          {"preempted_recompute", stats.scheduler.preempted_recompute},
          {"preempted_swap", stats.scheduler.preempted_swap},
          {"swapped_out_blocks", stats.kv.swapped_out_blocks},
          {"swapped_in_blocks", stats.kv.swapped_in_blocks}};
}

using Variants = std::vector<std::pair<std::string, ServingLoad>>;

// One round of each variant, whose answers must be those of the first.
absl::StatusOr<Json> RunRound(const Variants& variants) {
  Json round = Json::object();
  std::vector<std::vector<int32_t>> expected;
  for (const auto& [name, load] : variants) {
    auto result = Serve(load);
    if (!result.ok()) return Annotate(result.status(), name);
    if (expected.empty()) expected = result->answers;
    if (result->answers != expected) {
      return Internal("{}: its answers are not those of {}", name, variants.front().first);
    }
    round[name] = ToJson(*result, load);
    std::printf("%-28s %7.2f s  ttft %8.1f ms  prefill %7lld  %7.0f tokens/s\n", name.c_str(),
                result->seconds, Median(result->ttft_ms),
                static_cast<long long>(result->stats.prompt_tokens),
                round[name]["output_tokens_per_s"].get<double>());
    std::fflush(stdout);
  }
  return round;
}

Variants MakeVariants(const Flags& flags, int32_t vocab_size) {
  Variants variants;
  ServingLoad prefix = PrefixLoad(flags, vocab_size);
  for (const Arrivals arrivals : {Arrivals::kTogether, Arrivals::kOneAtATime}) {
    prefix.arrivals = arrivals;
    const std::string name =
        arrivals == Arrivals::kTogether ? "prefix, together" : "prefix, one at a time";
    prefix.options.prefix_caching = PrefixCaching::kOff;
    variants.emplace_back(name + ", off", prefix);
    prefix.options.prefix_caching = PrefixCaching::kOn;
    variants.emplace_back(name + ", on", prefix);
  }
  return variants;
}

Variants MakeCrowdedVariants(const Flags& flags, int32_t vocab_size) {
  constexpr int64_t kHostBytes = int64_t{512} << 20;
  Variants variants;
  ServingLoad crowded = CrowdedLoad(flags, vocab_size);
  variants.emplace_back("crowded, room for all", crowded);
  crowded.options.num_blocks /= 3;
  variants.emplace_back("crowded, a third", crowded);
  crowded.options.host_bytes = kHostBytes;
  variants.emplace_back("crowded, a third and a host", crowded);
  return variants;
}

double MedianRatio(const Json& rounds, const std::string& a, const std::string& b,
                   const char* field) {
  std::vector<double> ratios;
  for (const Json& round : rounds) {
    ratios.push_back(round[a][field].get<double>() / round[b][field].get<double>());
  }
  return Median(std::move(ratios));
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
  return {{"prefill_tokens_saved", 1 - ratio(on, off, "prefill_tokens")},
          {"ttft_ratio_together", ratio(off, on, "ttft_ms_median")},
          {"ttft_ratio_one_at_a_time", ratio(alone_off, alone_on, "ttft_ms_median")},
          {"throughput_third", ratio(third, room, speed)},
          {"throughput_third_and_host", ratio(host, room, speed)}};
}

absl::Status Run(const Flags& flags) {
  ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(flags.model));
  Json rounds = Json::array();
  for (int32_t i = 0; i < flags.rounds; ++i) {
    ASSIGN_OR_RETURN(Json round, RunRound(MakeVariants(flags, config.vocab_size)));
    ASSIGN_OR_RETURN(const Json crowded, RunRound(MakeCrowdedVariants(flags, config.vocab_size)));
    round.update(crowded);
    rounds.push_back(std::move(round));
  }
  const Json summary = Summarize(rounds);
  for (const auto& [name, value] : summary.items()) {
    std::printf("%-28s %.2f\n", name.c_str(), value.get<double>());
  }
  if (flags.json_path.empty()) return absl::OkStatus();
  std::ofstream file(flags.json_path);
  file << Json{{"model", flags.model},
               {"threads", flags.threads},
               {"summary", summary},
               {"rounds", std::move(rounds)}}
              .dump(1)
       << '\n';
  if (file.flush()) return absl::OkStatus();
  return Internal("{} cannot be written", flags.json_path);
}

absl::StatusOr<Flags> ParseFlags(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = argv[i + 1];
    int32_t* const number = name == "--threads"  ? &flags.threads
                            : name == "--rounds" ? &flags.rounds
                                                 : nullptr;
    if (number != nullptr) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *number);
      if (error != std::errc() || end != value.data() + value.size() || *number < 0) {
        return InvalidArgument("{} is {}: it must be a number", name, value);
      }
    } else if (name == "--model") {
      flags.model = std::string(value);
    } else if (name == "--json") {
      flags.json_path = std::string(value);
    } else {
      return InvalidArgument("{} is unknown; see the top of bench/kvstore_bench.cc", name);
    }
  }
  if (argc % 2 == 0) return InvalidArgument("{} has no value", argv[argc - 1]);
  return flags;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  const auto flags = tandem::ParseFlags(argc, argv);
  const absl::Status status = flags.ok() ? tandem::Run(*flags) : flags.status();
  if (status.ok()) return 0;
  std::fprintf(stderr, "kvstore_bench: %s\n", status.ToString().c_str());
  return 1;
}
