// The prefill kernels of the CUDA backend on emulated GPUs of several architectures: each takes the
// same problems, in every order of blocks and warps that a few seeds give.
#include <cmath>
#include <limits>

#include "tests/simt/simt.h"
#include "tests/support/attention_fixture.h"

namespace tandem::cuda_prefill_test {
namespace {

constexpr int kPortable = 80;  // mma.sync
constexpr int kHopper = 90;    // wgmma
constexpr uint64_t kSeeds[] = {2, 3};

class CudaPrefillTest : public AttentionOpsTest {
 protected:
  void TearDown() override {
    AttentionOpsTest::TearDown();
    simt::Configure({});
    simt::SetSeed(1);
  }

  // Right, with and without splits, and the same bits for every seed.
  void ExpectRightOn(int compute_capability, const AttentionProblem& p) {
    SCOPED_TRACE(compute_capability);
    AttentionOpsTest::TearDown();
    simt::Configure({.compute_capability = compute_capability});
    AttentionOpsTest::SetUp();
    simt::SetSeed(1);
    ExpectRight(p);
    for (SplitMode splits : {SplitMode::kBalanced, SplitMode::kFixed}) {
      const AttentionRun run = {.splits = splits, .lse = true};
      simt::SetSeed(1);
      const AttentionOutput first = Run(p, Whole(p), run);
      ExpectOutput(p, first.out, Expected(p).out, 1e-5);
      for (uint64_t seed : kSeeds) {
        simt::SetSeed(seed);
        const AttentionOutput again = Run(p, Whole(p), run);
        EXPECT_TRUE(BitwiseEqual(again.out, first.out)) << seed;
        EXPECT_TRUE(BitwiseEqual(again.lse, first.lse)) << seed;
      }
    }
  }

  void ExpectRightEverywhere(const HeadShape& shape, std::vector<AttentionSequence> sequences) {
    const AttentionProblem p = MakeProblem(shape, std::move(sequences));
    ExpectRightOn(kPortable, p);
    ExpectRightOn(kHopper, p);
  }
};

TEST_P(CudaPrefillTest, ShortChunksOverLongContexts) {  // split
  ExpectRightEverywhere({.kv_heads = 1, .group = 4}, {{16, 1400}});
  ExpectRightEverywhere({.kv_heads = 1, .group = 3, .head_dim = 128, .block_tokens = 64},
                        {{1, 1100}, {50, 1300}});
}

TEST_P(CudaPrefillTest, TilesOfAllFillings) {
  for (int32_t context : {1, 63, 64, 65, 127, 128, 129}) {
    SCOPED_TRACE(context);
    ExpectRightEverywhere({.kv_heads = 1}, {{context, context}, {0, 40}, {1, context}});
  }
}

TEST_P(CudaPrefillTest, MoreTilesThanBlocks) {
  ExpectRightEverywhere({.kv_heads = 3, .group = 7}, {{90, 130}, {40, 40}, {3, 200}, {64, 70}});
}

TEST_P(CudaPrefillTest, WindowsAndCaps) {
  ExpectRightEverywhere({.kv_heads = 1, .window = 100, .softcap = 5}, {{200, 500}, {9, 30}});
  ExpectRightEverywhere({.kv_heads = 1, .head_dim = 128, .window = 7}, {{70, 300}});
  ExpectRightEverywhere({.kv_heads = 1, .window = 1100}, {{10, 2500}});  // windows that are split
}

TEST_P(CudaPrefillTest, TypesOfQueriesAndPools) {
  constexpr DType kTypes[][2] = {{DType::kF32, DType::kF16},
                                 {DType::kBF16, DType::kBF16},
                                 {DType::kF16, DType::kF16},
                                 {DType::kBF16, DType::kF16}};
  for (const auto& [act, dtype] : kTypes) {
    SCOPED_TRACE(Name(act));
    SCOPED_TRACE(Name(dtype));
    ExpectRightEverywhere({.kv_heads = 1, .head_dim = 128, .dtype = dtype, .act = act},
                          {{40, 150}});
  }
}

// A later token's NaN, in tiles that rows before it share, is seen where it is visible alone.
class NanTest : public CudaPrefillTest {
 protected:
  static constexpr int32_t kTokens = 280;  // of the chunk, after 20 others
  static constexpr int32_t kWindow = 150;

  void ExpectNanWhereSeen(int compute_capability, DType dtype, int32_t head_dim, int32_t spoiled) {
    AttentionOpsTest::TearDown();
    simt::Configure({.compute_capability = compute_capability});
    AttentionOpsTest::SetUp();
    AttentionProblem p =
        MakeProblem({.kv_heads = 1, .head_dim = head_dim, .dtype = dtype, .window = kWindow},
                    {{kTokens, kTokens + 20}});
    const std::vector<float> before = RunAll(p);
    const std::vector<float> nan(static_cast<size_t>(head_dim),
                                 std::numeric_limits<float>::quiet_NaN());
    p.SetToken(0, spoiled, 1, nan);
    const std::vector<float> after = RunAll(p);
    const auto floats = static_cast<size_t>(p.row());
    for (int32_t token = 0; token < kTokens; ++token) {
      const auto row = [&](const std::vector<float>& out) {
        return std::span(out).subspan(static_cast<size_t>(token) * floats, floats);
      };
      const int32_t behind = token + 20 - spoiled;
      if (behind >= 0 && behind < kWindow) {
        EXPECT_TRUE(std::isnan(row(after)[0])) << token;
      } else {
        EXPECT_TRUE(BitwiseEqual(row(before), row(after))) << token;
      }
    }
  }
};

TEST_P(NanTest, ReachesTheRowsThatSeeIt) {
  for (int compute_capability : {kPortable, kHopper}) {
    for (DType dtype : {DType::kBF16, DType::kF16, DType::kF8E4M3}) {
      SCOPED_TRACE(compute_capability);
      ExpectNanWhereSeen(compute_capability, dtype, 64, 100);
    }
  }
}

// Keys in the first and in the last rows of slabs, by each of the warps that copy them.
TEST_P(NanTest, IsFoundAnywhereInATile) {
  for (int32_t head_dim : {64, 128}) {
    for (int32_t spoiled : {96, 111, 142, 255}) {
      SCOPED_TRACE(head_dim);
      SCOPED_TRACE(spoiled);
      ExpectNanWhereSeen(kHopper, DType::kBF16, head_dim, spoiled);
    }
  }
}

std::vector<OpsSetup> Emulated() {
  std::vector<OpsSetup> setups;
  for (const OpsSetup& setup : AllOpsSetups()) {
    if (setup.backend == "cuda:0") setups.push_back(setup);
  }
  return setups;
}

std::string NameOf(const testing::TestParamInfo<OpsSetup>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Emulated, CudaPrefillTest, testing::ValuesIn(Emulated()), NameOf);
INSTANTIATE_TEST_SUITE_P(Emulated, NanTest, testing::ValuesIn(Emulated()), NameOf);

}  // namespace
}  // namespace tandem::cuda_prefill_test
