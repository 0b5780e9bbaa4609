#pragma once

#include <cstdint>
#include <string>

#include "bench/serving_run.h"

namespace tandem {

// The loads of kvstore_bench.

// What all of them are served with.
struct KvLoadOptions {
  std::string model = "models/sample";
  int32_t threads = 0;
  int32_t vocab_size = 0;
  int64_t token_bytes = 0;  // of a token's KV in all layers
};

inline constexpr int32_t kKvBlockTokens = 16;

// 100 requests of 1,600 tokens, of which they share the first 1,500.
ServingLoad PrefixLoad(const KvLoadOptions& options);

// A mixture of prompts and outputs, of which nobody knows how long they become, and room for all.
ServingLoad CrowdedLoad(const KvLoadOptions& options);

// 64 prompts of 384 tokens with nothing in common, one after another, and then 192 drawn from them.
// The pool has room for 12 of them, and the budget of the host tier is what 24 take raw.
ServingLoad ReturningLoad(const KvLoadOptions& options);

}  // namespace tandem
