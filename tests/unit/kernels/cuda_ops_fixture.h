#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kernels/step_staging.h"

namespace tandem::cuda_ops {

// The sizes of the layer.
inline constexpr int64_t kVocab = 96;
inline constexpr int64_t kHidden = 128;
inline constexpr int64_t kHeads = 4;
inline constexpr int64_t kKvHeads = 2;
inline constexpr int64_t kHeadDim = 64;
inline constexpr int64_t kFused = (kHeads + 2 * kKvHeads) * kHeadDim;
inline constexpr int64_t kPositions = 256;
inline constexpr int32_t kBlockTokens = 16;
inline constexpr int32_t kBlocksEach = 16;  // of one sequence
inline constexpr DType kAct = DType::kBF16;

// The arrays of a decode step of sequences that have `lengths` tokens with the new one; sequence s
// has the blocks [16s, 16s + 16).
struct StepArrays {
  std::vector<int32_t> token_ids;
  std::vector<int32_t> positions;
  std::vector<int64_t> slots;
  std::vector<int32_t> query_starts = {0};
  std::vector<int32_t> context_lens;
  std::vector<int32_t> block_ids;
  std::vector<int32_t> table_starts = {0};

  explicit StepArrays(const std::vector<int32_t>& lengths) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      const auto first_block = static_cast<int32_t>(s) * kBlocksEach;
      const int32_t position = lengths[s] - 1;
      token_ids.push_back((11 * position + 5) % kVocab);
      positions.push_back(position);
      slots.push_back(int64_t{first_block} * kBlockTokens + position);
      query_starts.push_back(query_starts.back() + 1);
      context_lens.push_back(lengths[s]);
      for (int32_t i = 0; i < kBlocksEach; ++i) block_ids.push_back(first_block + i);
      table_starts.push_back(table_starts.back() + kBlocksEach);
    }
  }
};

// StepArrays as they were staged for a step.
struct StagedArrays {
  StagedSpan<int32_t> token_ids;
  StagedSpan<int32_t> positions;
  StagedSpan<int64_t> slots;
  StagedSpan<int32_t> query_starts;
  StagedSpan<int32_t> context_lens;
  BlockTables tables;
};

// One layer of a model on the emulated GPU, without the MLP, with all that its decode steps need.
class CudaOpsTest : public testing::Test {
 protected:
  static constexpr int64_t kRows = 3;

  CudaOpsTest()
      : backend_(*OpenBackend("cuda", {})),
        stream_(*backend_.device->NewStream()),
        staging_(*StepStaging::Create(*backend_.device, 64 << 10)) {
    table_ = Weight(kVocab, kHidden);
    qkv_weight_ = Weight(kFused, kHidden);
    out_weight_ = Weight(kHidden, kHeads * kHeadDim);
    norm_ = Floats(std::vector<float>(kHidden, 1));
    std::vector<float> cos(kPositions * kHeadDim / 2);
    std::vector<float> sin(cos.size());
    for (size_t i = 0; i < cos.size(); ++i) {
      cos[i] = std::cos(0.01f * static_cast<float>(i));
      sin[i] = std::sin(0.01f * static_cast<float>(i));
    }
    cos_ = Floats(cos);
    sin_ = Floats(sin);
    residual_ = Zeros(kRows * kHidden * 4);
    normed_ = Zeros(kRows * kHidden * 2);
    qkv_ = Zeros(kRows * kFused * 2);
    attended_ = Zeros(kRows * kHeads * kHeadDim * 2);
    logits_ = Zeros(kRows * kVocab * 4);
    pool_memory_ = Zeros(kRows * kBlocksEach * kKvHeads * kBlockTokens * kHeadDim * 2 * 2);
  }

  Ops& ops() { return *backend_.ops; }
  Stream& stream() { return *stream_; }

  static WorkLimits Limits() {
    return {.max_tokens = 64,
            .max_sequences = kRows,
            .max_logit_rows = kRows,
            .num_heads = kHeads,
            .num_kv_heads = kKvHeads,
            .head_dim = kHeadDim,
            .vocab_size = kVocab,
            .max_context_tokens = kPositions,
            .max_total_tokens = kRows * kPositions};
  }

  DeviceBuffer OnDevice(std::span<const std::byte> bytes) {
    DeviceBuffer buffer = *backend_.device->Allocate(bytes.size());
    EXPECT_TRUE(stream().Copy(buffer.bytes(), bytes).ok());
    EXPECT_TRUE(stream().Synchronize().ok());
    return buffer;
  }
  DeviceBuffer Zeros(int64_t size) {
    return OnDevice(std::vector<std::byte>(static_cast<size_t>(size)));
  }
  DeviceBuffer Floats(const std::vector<float>& values) {
    return OnDevice(std::as_bytes(std::span(values)));
  }
  // bf16 of random numbers below 1 in absolute value: the high halves of their f32.
  PackedMatrix Weight(int64_t n, int64_t k) {
    std::vector<uint16_t> values(static_cast<size_t>(n * k));
    std::uniform_real_distribution<float> uniform(-0.2f, 0.2f);
    for (uint16_t& value : values) {
      const float x = uniform(rng_);
      uint32_t bits;
      std::memcpy(&bits, &x, 4);
      value = static_cast<uint16_t>(bits >> 16);
    }
    weights_.push_back(OnDevice(std::as_bytes(std::span(values))));
    return {weights_.back().data(), kAct, n, k};
  }

  StagedArrays Stage(const StepArrays& arrays) {
    const auto add = [&](const auto& array) { return staging_->Add(std::span(array)); };
    EXPECT_TRUE(staging_->Begin().ok());
    StagedArrays staged;
    staged.token_ids = add(arrays.token_ids);
    staged.positions = add(arrays.positions);
    staged.slots = add(arrays.slots);
    staged.query_starts = add(arrays.query_starts);
    staged.context_lens = add(arrays.context_lens);
    staged.tables = {add(arrays.block_ids), add(arrays.table_starts)};
    EXPECT_TRUE(staging_->Upload(stream()).ok());
    return staged;
  }

  KvPoolView Pool() const {
    return {.data = pool_memory_.data(),
            .dtype = DType::kBF16,
            .num_layers = 1,
            .num_blocks = static_cast<int32_t>(kRows) * kBlocksEach,
            .num_kv_heads = kKvHeads,
            .block_tokens = kBlockTokens,
            .head_dim = kHeadDim};
  }
  AttentionArgs Attention(const StagedArrays& arrays) const {
    return {.q = TensorView(qkv_.data(), kAct, {kRows, kHeads, kHeadDim}).WithRowStride(kFused),
            .pool = Pool(),
            .query_starts = arrays.query_starts,
            .context_lens = arrays.context_lens,
            .block_tables = arrays.tables,
            .out = TensorView(attended_.data(), kAct, {kRows, kHeads, kHeadDim}),
            .scale = 0.125f};
  }

  // One layer of a decode step, without the MLP.
  absl::Status RunLayer(const StagedArrays& arrays) {
    const TensorView residual(residual_.data(), DType::kF32, {kRows, kHidden});
    const TensorView normed(normed_.data(), kAct, {kRows, kHidden});
    const TensorView qkv(qkv_.data(), kAct, {kRows, kFused});
    const AttentionArgs attention = Attention(arrays);
    const auto part = [&](int64_t offset) {
      return TensorView(qkv_.data() + offset * kHeadDim * 2, kAct, {kRows, kKvHeads, kHeadDim})
          .WithRowStride(kFused);
    };
    const TensorView k = part(kHeads);
    RETURN_IF_ERROR(ops().Embedding(
        stream(), {.token_ids = arrays.token_ids, .table = table_, .out = residual}));
    RETURN_IF_ERROR(
        ops().RmsNorm(stream(), {.x = residual,
                                 .weight = TensorView(norm_.data(), DType::kF32, {kHidden}),
                                 .out = normed}));
    RETURN_IF_ERROR(ops().Gemm(stream(), {.x = normed, .weight = qkv_weight_, .out = qkv}));
    RETURN_IF_ERROR(ops().RopeStoreKv(
        stream(),
        {.q = attention.q,
         .k = k,
         .positions = arrays.positions,
         .cos = TensorView(cos_.data(), DType::kF32, {kPositions, kHeadDim / 2}),
         .sin = TensorView(sin_.data(), DType::kF32, {kPositions, kHeadDim / 2})},
        {.k = k, .v = part(kHeads + kKvHeads), .slots = arrays.slots, .pool = Pool()}));
    absl::StatusOr<AttentionPlan> plan = ops().PlanDecode(stream(), attention);
    if (!plan.ok()) return plan.status();
    AttentionArgs planned = attention;
    planned.plan = *plan;
    RETURN_IF_ERROR(ops().AttentionDecode(stream(), planned));
    return ops().Gemm(stream(),
                      {.x = TensorView(attended_.data(), kAct, {kRows, kHeads * kHeadDim}),
                       .weight = out_weight_,
                       .out = residual,
                       .output = GemmOutput::kAccumulate});
  }

  std::vector<std::byte> Read(const DeviceBuffer& buffer) {
    std::vector<std::byte> content(buffer.size());
    EXPECT_TRUE(stream().Copy(content, buffer.bytes()).ok());
    EXPECT_TRUE(stream().Synchronize().ok());
    return content;
  }

  std::mt19937 rng_{7};
  Backend backend_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<StepStaging> staging_;
  std::vector<DeviceBuffer> weights_;
  PackedMatrix table_, qkv_weight_, out_weight_;
  DeviceBuffer norm_, cos_, sin_, residual_, normed_, qkv_, attended_, logits_, pool_memory_;
};

}  // namespace tandem::cuda_ops
