#include "bench/kvstore_loads.h"

#include <utility>
#include <vector>

#include "base/rng.h"

namespace tandem {
namespace {

constexpr int32_t kSharedTokens = 1500;
constexpr int32_t kPromptTokens = 1600;
constexpr int32_t kPrefixRequests = 100;
constexpr int32_t kReturningPrompts = 64;
constexpr int32_t kReturningDraws = 192;
constexpr int32_t kReturningTokens = 384;
constexpr int32_t kReturningInPool = 12;
constexpr int64_t kReturningOnHost = 24;
constexpr int32_t kCrowdedRequests = 64;
constexpr int32_t kCrowdedSequences = 16;

EngineRequest Request(uint64_t id, std::vector<int32_t> prompt, int32_t max_tokens) {
  return {.id = RequestId(id),
          .prompt = std::move(prompt),
          .sampling = {.temperature = 0.8f, .seed = id},
          .max_tokens = max_tokens};
}

int32_t BlocksFor(int64_t tokens) {
  return static_cast<int32_t>((tokens + kKvBlockTokens - 1) / kKvBlockTokens);
}

ServingLoad BaseLoad(const KvLoadOptions& options) {
  ServingLoad load;
  load.model_dir = options.model;
  load.threads = options.threads;
  load.options.layout.block_tokens = kKvBlockTokens;
  return load;
}

// Tokens that end an output: a few of many, so that its length cannot be known beforehand.
std::vector<int32_t> RareStops(int32_t vocab_size) {
  std::vector<int32_t> ids;
  for (int32_t id = 7; id < vocab_size; id += 151) ids.push_back(id);
  return ids;
}

}  // namespace

ServingLoad PrefixLoad(const KvLoadOptions& options) {
  constexpr int32_t kOutput = 8;
  ServingLoad load = BaseLoad(options);
  load.options.scheduler.max_sequences = 8;
  load.options.num_blocks = 10 * BlocksFor(kPromptTokens + kOutput);
  const std::vector<int32_t> shared = RandomTokens(1, kSharedTokens, options.vocab_size);
  for (uint64_t id = 1; id <= kPrefixRequests; ++id) {
    std::vector<int32_t> prompt = shared;
    const std::vector<int32_t> own =
        RandomTokens(1000 + id, kPromptTokens - kSharedTokens, options.vocab_size);
    prompt.insert(prompt.end(), own.begin(), own.end());
    load.requests.push_back(Request(id, std::move(prompt), kOutput));
  }
  return load;
}

ServingLoad CrowdedLoad(const KvLoadOptions& options) {
  constexpr int32_t kMaxTokens = 384;
  ServingLoad load = BaseLoad(options);
  load.options.scheduler.max_sequences = kCrowdedSequences;
  load.options.num_blocks = kCrowdedSequences * BlocksFor(512 + kMaxTokens);
  for (uint64_t id = 1; id <= kCrowdedRequests; ++id) {
    const auto prompt = static_cast<int32_t>(32 + id * 97 % 480);
    EngineRequest request = Request(id, RandomTokens(id, prompt, options.vocab_size), kMaxTokens);
    request.sampling.temperature = 5;
    if (id % 3 != 0) request.stop_token_ids = RareStops(options.vocab_size);
    load.requests.push_back(std::move(request));
  }
  return load;
}

ServingLoad ReturningLoad(const KvLoadOptions& options) {
  constexpr int32_t kOutput = 4;
  ServingLoad load = BaseLoad(options);
  load.arrivals = Arrivals::kOneAtATime;
  load.options.num_blocks = kReturningInPool * BlocksFor(kReturningTokens + kOutput);
  load.options.host_bytes = kReturningOnHost * kReturningTokens * options.token_bytes;
  for (int32_t i = 0; i < kReturningPrompts + kReturningDraws; ++i) {
    const double drawn = UniformAt(1, static_cast<uint64_t>(i)) * kReturningPrompts;
    const int32_t prompt = i < kReturningPrompts ? i : static_cast<int32_t>(drawn);
    load.requests.push_back(Request(
        static_cast<uint64_t>(i) + 1,
        RandomTokens(static_cast<uint64_t>(prompt) + 1, kReturningTokens, options.vocab_size),
        kOutput));
  }
  return load;
}

}  // namespace tandem
