#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "kernels/registry.h"
#include "kernels/step_staging.h"
#include "tests/simt/simt.h"

// What the ops of the CUDA backend promise beside their results (tests/conformance): memory made
// ahead, one copy per step, recordings that replay for other contexts, plans that are left alone.

namespace tandem::cuda_ops_test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kVocab = 96;
constexpr int64_t kHidden = 128;
constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadDim = 64;
constexpr int64_t kFused = (kHeads + 2 * kKvHeads) * kHeadDim;
constexpr int64_t kPositions = 256;
constexpr int32_t kBlockTokens = 16;
constexpr int32_t kBlocksEach = 16;  // of one sequence
constexpr DType kAct = DType::kBF16;

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

struct StagedArrays {
  StagedSpan<int32_t> token_ids;
  StagedSpan<int32_t> positions;
  StagedSpan<int64_t> slots;
  StagedSpan<int32_t> query_starts;
  StagedSpan<int32_t> context_lens;
  BlockTables tables;
};

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

TEST_F(CudaOpsTest, WithinTheLimitsNothingIsAllocatedAndEachStepIsOneCopy) {
  ASSERT_TRUE(ops().Reserve(Limits()).ok());
  const StepArrays arrays({40, 17, 200});
  ASSERT_TRUE(RunLayer(Stage(arrays)).ok());  // finds the library's kernels
  ASSERT_TRUE(stream().Synchronize().ok());
  simt::ResetCounts();
  for (int step = 0; step < 10; ++step) {
    const absl::Status status = RunLayer(Stage(arrays));
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(simt::Counts().copies_to_device, 10);
  EXPECT_EQ(simt::Counts().copies_to_host, 0);
  const StagedArrays staged = Stage(arrays);
  AttentionArgs prefill = Attention(staged);
  const auto plan = ops().PlanPrefill(prefill, *staging_);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(staging_->Upload(stream()).ok());
  prefill.plan = *plan;
  ASSERT_TRUE(ops().AttentionPrefill(stream(), prefill).ok());
  ASSERT_TRUE(ops().AttentionDecode(stream(), Attention(staged)).ok());
  EXPECT_EQ(simt::Counts().allocations, 0);
  EXPECT_EQ(simt::Counts().pageable_copies, 0);
  EXPECT_EQ(simt::Counts().device_synchronizations, 0);
}

TEST_F(CudaOpsTest, SamplingIsOneCopyEachWay) {
  ASSERT_TRUE(ops().Reserve(Limits()).ok());
  std::vector<int32_t> ids(kPositions, 3);
  const std::vector<SampleRow> rows = {
      {},
      {.temperature = 0.7f, .top_p = 0.9f, .num_logprobs = 20},
      {.temperature = 1, .presence_penalty = 1, .prompt_ids = ids, .output_ids = {}}};
  std::vector<SampledToken> out(kRows);
  const SampleArgs args = {
      .logits = TensorView(logits_.data(), DType::kF32, {kRows, kVocab}), .rows = rows, .out = out};
  ASSERT_TRUE(ops().Sample(stream(), args).ok());
  simt::ResetCounts();
  const absl::Status status = ops().Sample(stream(), args);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(out[0].token_id, 0);
  EXPECT_EQ(out[1].top.size(), 20);
  EXPECT_EQ(simt::Counts().copies_to_device, 1);
  EXPECT_EQ(simt::Counts().copies_to_host, 1);
  EXPECT_EQ(simt::Counts().allocations, 0);
  EXPECT_EQ(simt::Counts().pageable_copies, 0);
}

TEST_F(CudaOpsTest, PlannedSamplingGoesUpWithTheStepAndChoosesTheSame) {
  ASSERT_TRUE(ops().Reserve(Limits()).ok());
  std::vector<int32_t> ids(kVocab / 2);
  std::iota(ids.begin(), ids.end(), 0);
  const std::vector<SampleRow> rows = {
      {.temperature = 1, .seed = 1, .num_logprobs = 3},
      {.temperature = 1, .repetition_penalty = 9, .seed = 2, .prompt_ids = ids},
      {.temperature = 1, .presence_penalty = 2, .seed = 3, .position = 7, .output_ids = ids}};
  std::vector<SampledToken> expected(kRows);
  std::vector<SampledToken> out(kRows);
  SampleArgs args = {.logits = TensorView(logits_.data(), DType::kF32, {kRows, kVocab}),
                     .rows = rows,
                     .out = expected};
  ASSERT_TRUE(ops().Sample(stream(), args).ok());
  // Sampling works in the logits.
  const std::vector<std::byte> zeros(logits_.size());
  ASSERT_TRUE(stream().Copy(logits_.bytes(), zeros).ok());
  ASSERT_TRUE(stream().Synchronize().ok());

  simt::ResetCounts();
  ASSERT_TRUE(staging_->Begin().ok());
  staging_->Add(std::span<const int32_t>(ids));
  args.plan = ops().PlanSample(rows, *staging_);
  ASSERT_TRUE(staging_->Upload(stream()).ok());
  args.out = out;
  const absl::Status status = ops().Sample(stream(), args);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(simt::Counts().copies_to_device, 1);
  EXPECT_EQ(simt::Counts().allocations, 0);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i].token_id, expected[i].token_id);
  EXPECT_EQ(out[0].top.size(), 3);
}

// What a step is given is at most what the limits say.
TEST_F(CudaOpsTest, PlansOfTheLargestStepFitIntoWhatTheyAreSaidToTake) {
  ASSERT_TRUE(ops().Reserve(Limits()).ok());
  const auto staging = StepStaging::Create(*backend_.device, ops().PlanBytes());
  ASSERT_TRUE(staging.ok());
  const std::vector<int32_t> ids(kPositions, 3);
  const std::vector<SampleRow> rows(kRows, {.presence_penalty = 1, .output_ids = ids});
  ASSERT_TRUE((*staging)->Begin().ok());
  EXPECT_NE(ops().PlanSample(rows, **staging).data, nullptr);
  const StepArrays arrays({200, 256, 90});
  EXPECT_TRUE(ops().PlanPrefill(Attention(Stage(arrays)), **staging).ok());
  EXPECT_TRUE((*staging)->Upload(stream()).ok());
}

TEST_F(CudaOpsTest, AProductThatWasPreparedAsksForNothing) {
  constexpr int64_t kManyRows = 33;  // which a library computes
  const DeviceBuffer x = Zeros(kManyRows * kHidden * 2);
  const DeviceBuffer y = Zeros(kManyRows * kFused * 2);
  const GemmArgs args = {.x = TensorView(x.data(), kAct, {kManyRows, kHidden}),
                         .weight = qkv_weight_,
                         .out = TensorView(y.data(), kAct, {kManyRows, kFused})};
  simt::ResetCounts();
  ASSERT_TRUE(ops().PrepareGemm(args).ok());
  EXPECT_EQ(simt::Counts().heuristics, 1);
  EXPECT_EQ(simt::Counts().launches, 0);
  ASSERT_TRUE(ops().Gemm(stream(), args).ok());
  EXPECT_EQ(simt::Counts().heuristics, 1);
  GemmArgs other = args;
  other.output = GemmOutput::kAccumulate;
  const DeviceBuffer sums = Zeros(kManyRows * kFused * 4);
  other.out = TensorView(sums.data(), DType::kF32, {kManyRows, kFused});
  ASSERT_TRUE(ops().Gemm(stream(), other).ok());
  EXPECT_EQ(simt::Counts().heuristics, 2);
}

TEST_F(CudaOpsTest, ARecordedStepServesOtherTokensAndLongerContexts) {
  ASSERT_TRUE(ops().Reserve(Limits()).ok());
  const StepArrays recorded({1, 2, 3});
  ASSERT_TRUE(RunLayer(Stage(recorded)).ok());
  const StagedArrays staged = Stage(recorded);
  ASSERT_TRUE(stream().BeginRecording().ok());
  const absl::Status status = RunLayer(staged);
  ASSERT_TRUE(status.ok()) << status;
  const auto graph = stream().EndRecording();
  ASSERT_TRUE(graph.ok()) << graph.status();

  for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{5, 100, 31}, {250, 1, 256}}) {
    const StepArrays arrays(lengths);
    const std::vector<std::byte> pool = Read(pool_memory_);
    ASSERT_TRUE(RunLayer(Stage(arrays)).ok());
    const std::vector<std::byte> expected = Read(residual_);
    const std::vector<std::byte> expected_pool = Read(pool_memory_);
    ASSERT_TRUE(stream().Copy(pool_memory_.bytes(), pool).ok());
    ASSERT_TRUE(stream().Synchronize().ok());

    Stage(arrays);
    ASSERT_TRUE(stream().Launch(**graph).ok());
    EXPECT_EQ(Read(residual_), expected);
    EXPECT_EQ(Read(pool_memory_), expected_pool);
  }
}

TEST_F(CudaOpsTest, ARecordingRefusesArraysThatAreNotStaged) {
  const std::vector<int32_t> token_ids = {1, 2, 3};
  const EmbeddingArgs args = {.token_ids = token_ids,
                              .table = table_,
                              .out = TensorView(residual_.data(), DType::kF32, {kRows, kHidden})};
  ASSERT_TRUE(stream().BeginRecording().ok());
  const absl::Status status = ops().Embedding(stream(), args);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stage it"));
  EXPECT_EQ(stream().EndRecording().status(), status);
  EXPECT_TRUE(ops().Embedding(stream(), args).ok());
}

TEST_F(CudaOpsTest, ARecordingDoesNotMakeMemory) {
  const StepArrays arrays({1, 2, 3});
  const StagedArrays staged = Stage(arrays);
  ASSERT_TRUE(stream().BeginRecording().ok());
  const absl::Status status = ops().PlanDecode(stream(), Attention(staged)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("reserve"));
  EXPECT_FALSE(stream().EndRecording().ok());
}

TEST_F(CudaOpsTest, CallsWithoutAPlanLeaveTheOneThatWasMade) {
  const StepArrays long_arrays({200, 256, 90});
  const StepArrays short_arrays({2, 3, 1});
  ASSERT_TRUE(RunLayer(Stage(long_arrays)).ok());
  const std::vector<std::byte> expected = Read(attended_);
  const StagedArrays staged = Stage(long_arrays);
  AttentionArgs args = Attention(staged);
  args.plan = *ops().PlanDecode(stream(), args);

  StagedArrays other;
  other.query_starts = short_arrays.query_starts;
  other.context_lens = short_arrays.context_lens;
  other.tables = {short_arrays.block_ids, short_arrays.table_starts};
  ASSERT_TRUE(ops().AttentionDecode(stream(), Attention(other)).ok());
  EXPECT_NE(Read(attended_), expected);
  ASSERT_TRUE(ops().AttentionDecode(stream(), args).ok());
  EXPECT_EQ(Read(attended_), expected);
}

TEST_F(CudaOpsTest, WeightsArePackedFromRowsThatAreApart) {
  constexpr int64_t kColumns = 5;
  constexpr int64_t kStride = 8;
  std::vector<uint16_t> a(3 * kStride);
  std::vector<uint16_t> b(2 * kColumns);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint16_t>(i);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<uint16_t>(1000 + i);
  DeviceBuffer memory =
      *backend_.device->Allocate(static_cast<size_t>(ops().PackedBytes(DType::kF16, 5, kColumns)));
  const PackedMatrix packed = {memory.data(), DType::kF16, 5, kColumns};
  const std::vector<TensorView> sources = {
      TensorView(a.data(), DType::kF16, {3, kColumns}).WithRowStride(kStride),
      TensorView(b.data(), DType::kF16, {2, kColumns})};
  ASSERT_TRUE(ops().PackWeight(stream(), packed, sources).ok());
  const std::vector<std::byte> content = Read(memory);
  std::vector<uint16_t> values(content.size() / 2);
  std::memcpy(values.data(), content.data(), content.size());
  EXPECT_THAT(values,
              testing::ElementsAre(0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 16, 17, 18, 19, 20, 1000, 1001,
                                   1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009));
}

}  // namespace
}  // namespace tandem::cuda_ops_test
