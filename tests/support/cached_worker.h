#pragma once

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "router/prefix/prompt_hashes.h"
#include "tandem/v1/cluster.pb.h"
#include "tests/support/worker_views.h"

namespace tandem {

// Workers of tests that keep a prefix cache, with blocks of 8 tokens.
inline constexpr PrefixSpace kTestSpace = {.root = 77, .block_tokens = 8};

inline WorkerView MakeCachingWorker(const std::string& name, v1::WorkerRole role) {
  WorkerView worker = MakeWorker(name, role);
  ChangeInfo(worker, [](WorkerInfo& info) {
    info.prefix_root = kTestSpace.root;
    info.layout.set_block_tokens(kTestSpace.block_tokens);
  });
  return worker;
}

// `first`, `first` + 1, ...
inline std::vector<int32_t> PromptFrom(int32_t first, size_t tokens) {
  std::vector<int32_t> prompt(tokens);
  std::iota(prompt.begin(), prompt.end(), first);
  return prompt;
}

inline std::shared_ptr<const PromptHashes> Hashed(const std::vector<int32_t>& prompt,
                                                  const std::string& salt = "") {
  return HashPrompt({kTestSpace}, salt, prompt);
}

// The report that a worker has the first `blocks` blocks of this prompt.
inline v1::CacheChanges Added(uint64_t since, uint64_t sequence, const PromptHashes& prompt,
                              size_t blocks) {
  v1::CacheChanges report;
  report.set_since(since);
  report.set_sequence(sequence);
  const std::vector<uint64_t>& hashes = prompt.chains.at(0).hashes;
  for (size_t i = 0; i < blocks; ++i) report.add_added(hashes.at(i));
  return report;
}

}  // namespace tandem
