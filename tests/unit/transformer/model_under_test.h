#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "model/checkpoint/checkpoint.h"
#include "model/transformer/forward.h"
#include "tests/support/test_device.h"

namespace tandem {

// A sequence in the pool of a ModelUnderTest.
struct TestSequence {
  std::vector<int32_t> ids;     // prompt and what was appended
  int32_t computed = 0;         // positions whose KV is, or was, in the pool
  int32_t evicted = 0;          // of these, in each layer; the others lie in order from slot 0 on
  std::vector<int32_t> blocks;  // in an order that is not the pool's
};

// `rows` new positions of a sequence in one step; its logits after them are wanted.
struct TestWork {
  TestSequence* sequence = nullptr;
  int32_t rows = 0;
};

struct TestModelOptions {
  std::string directory;
  std::string device = TestDevice();
  int num_threads = 1;
  WeightsAs weights_as = WeightsAs::kStored;
  DType kv_dtype = DType::kF32;
  int32_t max_tokens = 1024;  // of a step, and of all sequences together
  SplitMode splits = SplitMode::kBalanced;
  LoadProgress progress = nullptr;
  LayerStored layer_stored = nullptr;  // of every step
};

// A checkpoint on a backend and with a block pool of its own, poisoned with NaN.
class ModelUnderTest {
 public:
  static std::unique_ptr<ModelUnderTest> Load(const TestModelOptions& options);

  TestSequence NewSequence(std::vector<int32_t> ids);

  // Runs one forward pass over `chunks` and then `decodes` (rows 1 each) and returns one row of
  // logits per sequence.
  std::vector<std::vector<float>> Step(const std::vector<TestWork>& chunks,
                                       const std::vector<TestWork>& decodes = {});
  // Runs the rest of the sequence in chunks of `chunk` rows and returns the last row's logits.
  std::vector<float> Prefill(TestSequence& sequence, int32_t chunk);
  // Appends the most probable token of `logits` and runs it as a decode step.
  std::vector<float> DecodeGreedily(TestSequence& sequence, const std::vector<float>& logits);

  // Gives up the KV of all computed tokens but kept[layer * num_kv_heads + head], as many in each KV
  // head. The pool must be memory of the host.
  void Evict(TestSequence& sequence, const std::vector<std::vector<int32_t>>& kept);
  // The attention that each computed token gets from the last `rows` rows of a step over the whole
  // sequence, by layer, summed over KV heads. Computes the sequence.
  std::vector<std::vector<float>> MassesOf(TestSequence& sequence, int32_t rows, float decay,
                                           int32_t chunk);

  // The logits stay on the device.
  absl::StatusOr<TensorView> Forward(const ForwardBatch& batch, const LayerStored& layer_stored);
  // One row of what Forward gave.
  std::vector<float> Row(const TensorView& logits, int64_t row) const;
  const ModelConfig& config() const { return config_; }
  const KvPoolView& pool() const { return pool_; }
  // One layer of one block.
  std::vector<std::byte> ExtentOf(int32_t layer, int32_t block) const;
  // The bytes of what K and V of layer `layer` hold for the first `tokens` of `sequence`.
  std::vector<std::byte> KvOf(const TestSequence& sequence, int32_t layer, int32_t tokens) const;

  static constexpr int32_t kBlockTokens = 16;

 private:
  std::byte* RowOf(const TestSequence& sequence, int32_t layer, int32_t part, int32_t head,
                   int32_t slot) const;
  void Poison(std::span<std::byte> memory);
  std::vector<std::byte> Download(std::span<const std::byte> memory) const;

  ModelConfig config_;
  Backend backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<WeightStore> weights_;
  std::unique_ptr<Transformer> transformer_;
  DeviceBuffer pool_memory_;
  KvPoolView pool_;
  int32_t used_blocks_ = 0;
  std::span<const MassRequest> masses_;  // of the next step
  LayerStored layer_stored_;
};

// The lowest index of the largest value.
int32_t ArgMax(const std::vector<float>& logits);

}  // namespace tandem
