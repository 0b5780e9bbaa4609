#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/simt/simt.h"
#include "tests/unit/kernels/cuda_ops_fixture.h"

// What the ops of the CUDA backend promise beside their results (tests/conformance): memory made
// ahead, one copy per step, and products that were prepared.

namespace tandem::cuda_ops_test {
namespace {

using cuda_ops::CudaOpsTest;
using cuda_ops::kAct;
using cuda_ops::kFused;
using cuda_ops::kHidden;
using cuda_ops::kPositions;
using cuda_ops::kVocab;
using cuda_ops::StagedArrays;
using cuda_ops::StepArrays;

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
