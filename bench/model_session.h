#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/profiling_ops.h"
#include "kernels/registry.h"
#include "model/transformer/forward.h"

namespace tandem {

// One timed stretch of forward passes.
struct BenchRun {
  double seconds = 0;
  int64_t tokens = 0;  // prefilled, or sampled
  int64_t steps = 0;
  OpProfile profile;
};

// A checkpoint with a block pool, driven as the engine drives it, without the engine.
class ModelSession {
 public:
  struct Options {
    std::string directory;
    std::string device = "cpu";  // or "cpu-bf16"
    int num_threads = 0;
    WeightsAs weights_as = WeightsAs::kStored;
    DType kv_dtype = DType::kBF16;
    int32_t chunk_tokens = 512;  // the engine's default token budget
    int32_t max_batch = 1;
    int32_t max_context_tokens = 0;  // of one sequence
  };

  static absl::StatusOr<std::unique_ptr<ModelSession>> Open(const Options& options);

  // Prefills one sequence of `tokens` random ids from an empty context, chunk by chunk, and samples
  // the first token.
  absl::StatusOr<BenchRun> Prefill(int32_t tokens);
  // The same of these ids, of which there are at most max_context_tokens.
  absl::StatusOr<BenchRun> Prefill(std::span<const int32_t> ids);
  // What was prefilled last: one layer of one block of it.
  std::span<const std::byte> Extent(int32_t layer, int32_t block) const;
  // Decodes `batch` sequences for `steps` steps, greedily, each on `depth` tokens of its own KV.
  // The KV is made before the clock starts: prefilled once, copied for each further sequence.
  absl::StatusOr<BenchRun> Decode(int32_t batch, int32_t depth, int32_t steps);

  const ModelConfig& config() const { return config_; }
  const KvPoolView& pool() const { return pool_; }
  double load_seconds() const { return load_seconds_; }
  int64_t weight_bytes() const { return weights_->resident_bytes(); }
  int64_t parameters() const { return parameters_; }

 private:
  struct Span {
    int32_t sequence = 0;
    int32_t begin = 0;  // positions [begin, end)
    int32_t end = 0;
  };
  enum class Wanted : uint8_t { kNothing, kTokens };

  absl::Status AllocatePool();
  int32_t BlocksPerSequence() const;
  // One forward pass; samples the token after each span when tokens are wanted.
  absl::Status Step(std::span<const Span> spans, Wanted wanted);
  absl::Status PrefillSequence(int32_t tokens);

  Options options_;
  ModelConfig config_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ProfilingOps> ops_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<Transformer> transformer_;
  DeviceBuffer pool_memory_;
  KvPoolView pool_;
  std::vector<int32_t> tables_;            // [max_batch, blocks per sequence]
  std::vector<std::vector<int32_t>> ids_;  // per sequence, by position
  double load_seconds_ = 0;
  int64_t parameters_ = 0;
};

}  // namespace tandem
