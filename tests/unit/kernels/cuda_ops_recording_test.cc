#include <cstdint>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/kernels/cuda_ops_fixture.h"

// Steps of the CUDA backend that are recorded and replay for other contexts, and plans that other calls
// leave alone.

namespace tandem::cuda_ops_recording_test {
namespace {

using cuda_ops::CudaOpsTest;
using cuda_ops::kHidden;
using cuda_ops::StagedArrays;
using cuda_ops::StepArrays;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace tandem::cuda_ops_recording_test
