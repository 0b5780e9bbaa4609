#include <algorithm>

#include "hwy/targets.h"
#include "tests/support/attention_fixture.h"

// P2: whose bits of an attention row depend on that row alone, and where.

namespace tandem::ops_attention_bits_test {
namespace {

using Problem = AttentionProblem;

class AttentionBitsTest : public AttentionOpsTest {
 protected:
  // The only sequence of `p` in steps of `chunk` rows, each against the context so far.
  std::vector<float> InChunks(const Problem& p, int32_t chunk, AttentionRun run) {
    const int32_t context = p.sequences[0].context;
    std::vector<float> rows;
    for (int32_t done = 0; done < context; done += chunk) {
      AttentionBatch batch;
      batch.first_row = done;
      const int32_t q_len = std::min(chunk, context - done);
      batch.Add({q_len, done + q_len}, p.tables[0]);
      const std::vector<float> part = Run(p, batch, run).out;
      rows.insert(rows.end(), part.begin(), part.end());
    }
    return rows;
  }

  // The ways to split in which a row has the same bits in every batch.
  std::vector<SplitMode> InvariantSplits() const {
    if (always_batch_invariant()) return {SplitMode::kBalanced, SplitMode::kFixed};
    return {SplitMode::kFixed};
  }
};

// The rows of one sequence, whole, in chunks, and one by one through decode. Long chunks widen K
// and V once for many rows, short ones and decode read them straight from the pool.
TEST_P(AttentionBitsTest, ChunkingChangesNoBit) {
  constexpr int32_t kContext = 290;
  std::vector<HeadShape> shapes = {
      HeadShape{.group = 1, .head_dim = 64},
      HeadShape{.kv_heads = 1, .group = 3, .head_dim = 80, .window = 40},
      HeadShape{.kv_heads = 1, .group = 5, .dtype = DType::kF16, .softcap = 20},
      HeadShape{.kv_heads = 1, .head_dim = 128, .dtype = DType::kF32},
      HeadShape{.kv_heads = 1, .group = 4, .dtype = DType::kF8E4M3},
      HeadShape{.kv_heads = 1, .head_dim = 24, .dtype = DType::kF8E4M3},
      HeadShape{.kv_heads = 1, .block_tokens = 8, .window = 270}};
  for (DType dtype : KvTypes(64)) {
    if (!IsQuantisedKv(dtype)) continue;
    shapes.push_back({.kv_heads = 1, .group = 3, .dtype = dtype});
    shapes.push_back({.kv_heads = 1, .head_dim = 128, .dtype = dtype, .window = 40});
  }
  for (const HeadShape& shape : shapes) {
    SCOPED_TRACE(std::to_string(shape.head_dim) + " " + std::string(Name(shape.dtype)));
    const Problem p = MakeProblem(shape, {{kContext, kContext}});
    AttentionRun run = {.op = AttentionOp::kPrefill, .splits = InvariantSplits().front()};
    const std::vector<float> whole = InChunks(p, kContext, run);
    for (int32_t chunk : {static_cast<int32_t>(Size(1, 7)), 17, 128}) {
      SCOPED_TRACE(chunk);
      EXPECT_TRUE(BitwiseEqual(InChunks(p, chunk, run), whole));
    }
    if (!prefill_equals_decode()) continue;
    run.op = AttentionOp::kDecode;
    EXPECT_TRUE(BitwiseEqual(InChunks(p, 1, run), whole));
  }
}

// A sequence alone and among others, for every number of threads. With few sequences decode
// computes the parts of a context apart, with many it does not.
TEST_P(AttentionBitsTest, NeighboursAndThreadsChangeNoBit) {
  std::vector<AttentionSequence> sequences = {{1, 1500}, {1, 3}, {1, 257}};
  for (int32_t i = 0; i < 30; ++i) sequences.push_back({1, 10 + 37 * i});
  for (DType dtype : KvTypes(HeadShape().head_dim)) {
    if (dtype == DType::kF32 || dtype == DType::kF16) continue;
    SCOPED_TRACE(Name(dtype));
    const Problem p = MakeProblem({.group = 3, .dtype = dtype}, sequences);
    const size_t row = static_cast<size_t>(p.row());
    for (SplitMode splits : InvariantSplits()) {
      UseThreads(3);
      const AttentionRun run = {.op = AttentionOp::kDecode, .splits = splits};
      const std::vector<float> together = Run(p, Whole(p), run).out;
      for (int num_threads : ThreadCounts()) {
        SCOPED_TRACE(num_threads);
        UseThreads(num_threads);
        EXPECT_TRUE(BitwiseEqual(Run(p, Whole(p), run).out, together));
        if (prefill_equals_decode()) {
          EXPECT_TRUE(BitwiseEqual(RunAll(p), together));
        }
        for (size_t s : {0, 1, 2, 7}) {
          const std::vector<float> alone = Run(p, Alone(p, s), run).out;
          EXPECT_TRUE(BitwiseEqual(alone, std::span(together).subspan(s * row, row)));
        }
      }
    }
  }
}

TEST_P(AttentionBitsTest, PrefillNeighboursChangeNoBit) {
  const Problem p = MakeProblem({.head_dim = 128}, {{30, 200}, {5, 70}, {1, 33}, {50, 50}});
  for (SplitMode splits : InvariantSplits()) {
    const AttentionRun run = {.op = AttentionOp::kPrefill, .splits = splits};
    const std::vector<float> together = Run(p, Whole(p), run).out;
    size_t at = 0;
    for (size_t s = 0; s < p.sequences.size(); ++s) {
      const std::vector<float> alone = Run(p, Alone(p, s), run).out;
      EXPECT_TRUE(BitwiseEqual(alone, std::span(together).subspan(at, alone.size())));
      at += alone.size();
    }
  }
}

TEST_P(AttentionBitsTest, TheSameCallTwiceGivesTheSameBits) {
  const Problem p = MakeProblem({.head_dim = 128}, {{1, 400}, {1, 90}, {1, 30}});
  for (AttentionOp op : {AttentionOp::kPrefill, AttentionOp::kDecode}) {
    for (SplitMode splits : {SplitMode::kBalanced, SplitMode::kFixed}) {
      const AttentionRun run = {.op = op, .splits = splits, .lse = true};
      const AttentionOutput first = Run(p, Whole(p), run);
      const AttentionOutput second = Run(p, Whole(p), run);
      EXPECT_TRUE(BitwiseEqual(first.out, second.out));
      EXPECT_TRUE(BitwiseEqual(first.lse, second.lse));
    }
  }
}

// Both ways to split are right, whatever the batch.
TEST_P(AttentionBitsTest, FixedSplitsEqualReference) {
  for (DType act : ActivationTypes()) {
    for (int32_t window : {0, 700}) {
      const DType dtype = act == DType::kF16 ? DType::kF8E4M3 : DType::kBF16;
      const HeadShape shape = {.dtype = dtype, .act = act, .window = window};
      const Problem p = MakeProblem(shape, {{1, 600}, {1, 512}, {1, 40}, {1, 0}, {1, 2000}});
      const AttentionRun run = {.op = AttentionOp::kDecode, .splits = SplitMode::kFixed};
      ExpectOutput(p, Run(p, Whole(p), run).out, Expected(p).out, 1e-5);
    }
  }
}

// Vectors of 8 lanes and of 16, and processors that multiply pairs of bf16 by one instruction or by
// two.
TEST_P(AttentionBitsTest, VectorWidthsChangeNoBit) {
  const int64_t target = GetParam().simd_target;
  if (target != HWY_AVX3) GTEST_SKIP() << "compares AVX-512 with AVX2";
  for (int32_t q_len : {1, 290}) {
    const Problem p = MakeProblem({.group = 3, .window = 111}, {{q_len, 290}});
    const std::vector<float> wide = RunAll(p);
    hwy::GetChosenTarget().Update(HWY_AVX2);
    EXPECT_TRUE(BitwiseEqual(RunAll(p), wide));
    hwy::GetChosenTarget().Update(target);
  }
}

// What is reported beside the result does not change it.
TEST_P(AttentionBitsTest, ReportsChangeNoBit) {
  const Problem p = MakeProblem({}, {{1, 300}, {1, 50}});
  for (SplitMode splits : {SplitMode::kBalanced, SplitMode::kFixed}) {
    AttentionRun run = {.op = AttentionOp::kDecode, .splits = splits};
    const std::vector<float> plain = Run(p, Whole(p), run).out;
    run.lse = true;
    EXPECT_TRUE(BitwiseEqual(Run(p, Whole(p), run).out, plain));
    run.mass_blocks = MaxBlocks(p);
    EXPECT_TRUE(BitwiseEqual(Run(p, Whole(p), run).out, plain));
    run = {.op = AttentionOp::kPrefill, .splits = splits};
    const std::vector<float> prefill = Run(p, Whole(p), run).out;
    run.lse = true;
    EXPECT_TRUE(BitwiseEqual(Run(p, Whole(p), run).out, prefill));
  }
}

TANDEM_INSTANTIATE_OPS_TEST_ON(AttentionBitsTest, AttentionSetups());

}  // namespace
}  // namespace tandem::ops_attention_bits_test
