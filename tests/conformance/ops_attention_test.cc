#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "tests/support/attention_fixture.h"

// Attention against float64, over every shape that it takes.

namespace tandem::ops_attention_test {
namespace {

using Problem = AttentionProblem;

// 32, which tensor cores do not take, and the two that have kernels of every architecture.
constexpr int32_t kHeadDims[] = {32, 64, 128};

class AttentionTest : public AttentionOpsTest {
 protected:
  // Contexts around blocks' and tiles' edges, decoded and prefilled, and rows that see little.
  void ExpectRightAtEdges(const HeadShape& shape) {
    std::vector<AttentionSequence> edges;
    for (int32_t edge : {1, 8, 16, shape.block_tokens, 2 * shape.block_tokens, 256}) {
      for (int32_t context : {edge - 1, edge, edge + 1}) {
        if (context > 0) edges.push_back({1, context});
      }
    }
    const int32_t tokens = shape.block_tokens + 1;
    ExpectRight(MakeProblem(shape, edges));
    ExpectRight(MakeProblem(shape, {{0, 0}, {tokens, tokens}, {0, 3}, {3, 3}}));
  }

  // Every type of KV with every type of activations that goes with it.
  std::vector<HeadShape> EveryType(const HeadShape& shape) {
    std::vector<HeadShape> shapes;
    for (DType act : ActivationTypes()) {
      for (DType dtype : KvTypes(shape.head_dim)) {
        const bool is_half = dtype == DType::kF16 || dtype == DType::kBF16;
        const bool same_half = act == DType::kF32 || !is_half || dtype == act;
        if (!same_half) continue;
        shapes.push_back(shape);
        shapes.back().dtype = dtype;
        shapes.back().act = act;
      }
    }
    return shapes;
  }
};

TEST_P(AttentionTest, EqualsReferenceForEveryGroupSize) {
  for (int32_t group : {1, 2, 3, 4, 6, 7, 8, 16}) {
    SCOPED_TRACE(group);
    ExpectRight(MakeProblem({.group = group}, {{1, 33}, {19, 50}}));
    ExpectRight(MakeProblem({.group = group}, {{1, 1}, {1, 40}}));
  }
  ExpectRight(MakeProblem({.kv_heads = 1, .group = 150, .head_dim = 32}, {{2, 20}}));
  ExpectRight(MakeProblem({.kv_heads = 1, .group = 150, .head_dim = 32}, {{1, 20}}));
}

TEST_P(AttentionTest, EqualsReferenceForEveryHeadDimAndType) {
  for (int32_t head_dim : {8, 24, 32, 64, 80, 96, 128, 256}) {
    for (const HeadShape& shape : EveryType({.head_dim = head_dim})) {
      SCOPED_TRACE(std::to_string(head_dim) + " " + std::string(Name(shape.dtype)) + " of " +
                   std::string(Name(shape.act)));
      ExpectRight(MakeProblem(shape, {{5, 21}, {1, 18}}));
      ExpectRight(MakeProblem(shape, {{1, 35}, {1, 7}}));
    }
  }
}

TEST_P(AttentionTest, EqualsReferenceForEveryHeadDimOverEveryBlockSize) {
  for (int32_t head_dim : {64, 96, 128, 256}) {
    for (int32_t block_tokens : {8, 16, 32, 64, 256}) {
      SCOPED_TRACE(std::to_string(head_dim) + " " + std::to_string(block_tokens));
      const HeadShape shape = {.kv_heads = 1, .head_dim = head_dim, .block_tokens = block_tokens};
      ExpectRight(MakeProblem(shape, {{3, 70}, {1, 131}}));
      ExpectRight(MakeProblem(shape, {{1, 70}, {1, 131}}));
    }
  }
}

TEST_P(AttentionTest, EqualsReferenceForEveryBlockSizeAndEdge) {
  for (int32_t head_dim : kHeadDims) {
    for (int32_t block_tokens : {8, 16, 32, 64}) {
      SCOPED_TRACE(std::to_string(head_dim) + " " + std::to_string(block_tokens));
      ExpectRightAtEdges({.kv_heads = 1, .head_dim = head_dim, .block_tokens = block_tokens});
    }
  }
}

// A GPU of 9.0 has prefill kernels of its own for 16-bit KV of these heads: the portable ones,
// which others run, are held to the same there. On the CPU once more what it does anyway.
TEST_P(AttentionTest, EqualsReferenceWithPortableKernels) {
  UseKernelsOf(89);
  for (int32_t head_dim : {64, 128}) {
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(std::to_string(head_dim) + " " + std::string(Name(dtype)));
      HeadShape shape = {.kv_heads = 1, .head_dim = head_dim, .dtype = dtype};
      for (int32_t block_tokens : {16, 64}) {
        shape.block_tokens = block_tokens;
        ExpectRightAtEdges(shape);
      }
      ExpectRight(MakeProblem(shape, {{65, 70}, {17, 530}}));
      shape.window = 40;
      ExpectRight(MakeProblem(shape, {{30, 100}, {20, 20}}));
    }
  }
}

// As many query rows as tiles of prefill hold, one less, one more, and parts of several tiles.
TEST_P(AttentionTest, EqualsReferenceAtTheEdgesOfQueryTiles) {
  for (int32_t q_len : {15, 16, 17, 31, 32, 33, 64, 65}) {
    SCOPED_TRACE(q_len);
    ExpectRight(MakeProblem({.kv_heads = 1, .group = 4}, {{q_len, q_len + 5}, {2, 9}}));
  }
}

TEST_P(AttentionTest, EqualsReferenceWithWindows) {
  for (int32_t head_dim : kHeadDims) {
    for (int32_t block_tokens : {8, 32}) {
      for (int32_t window : {1, 5, 16, 40, 300}) {
        SCOPED_TRACE(std::to_string(head_dim) + " " + std::to_string(window));
        const HeadShape shape = {
            .kv_heads = 1, .head_dim = head_dim, .block_tokens = block_tokens, .window = window};
        ExpectRight(MakeProblem(shape, {{30, 100}, {1, 90}, {20, 20}, {17, 530}}));
        ExpectRight(MakeProblem(shape, {{1, 300}, {1, 513}, {1, 7}}));
      }
    }
  }
  ExpectRight(MakeProblem({.head_dim = 128, .window = 70}, {{40, 200}, {1, 65}}));
  ExpectRight(MakeProblem({.head_dim = 128, .window = 70}, {{1, 200}, {1, 65}}));
}

// With logits three times as large, what they lose by rounded queries is three times as much.
TEST_P(AttentionTest, EqualsReferenceWithSoftcap) {
  const double bound = GetParam().backend == "cpu-bf16" ? 1e-2 : 1e-5;
  for (float softcap : {0.5f, 30.0f}) {
    for (const HeadShape& shape : EveryType({.softcap = softcap})) {
      SCOPED_TRACE(Name(shape.dtype));
      ExpectRight(MakeProblem(shape, {{20, 90}, {1, 70}}, 3.0f), bound);
      ExpectRight(MakeProblem(shape, {{1, 90}, {1, 300}}, 3.0f), bound);
    }
  }
  ExpectRight(MakeProblem({.window = 30, .softcap = 20}, {{20, 90}, {1, 70}}, 3.0f), bound);
}

// Rows with and without a window, over several blocks and chunks, in blocks of every size.
TEST_P(AttentionTest, EqualsReferenceOverQuantisedKv) {
  for (DType dtype : KvTypes(64)) {
    if (!IsQuantisedKv(dtype)) continue;
    for (int32_t head_dim : {64, 128, 192}) {
      for (int32_t block_tokens : {8, 64}) {
        SCOPED_TRACE(std::string(Name(dtype)) + " " + std::to_string(head_dim));
        HeadShape shape = {
            .group = 3, .head_dim = head_dim, .block_tokens = block_tokens, .dtype = dtype};
        ExpectRight(MakeProblem(shape, {{30, 100}, {1, 7}, {20, 20}, {65, 330}}));
        ExpectRight(MakeProblem(shape, {{1, 300}, {1, 0}, {1, 513}, {1, 1}}));
        shape.window = 40;
        ExpectRight(MakeProblem(shape, {{30, 100}, {17, 530}}));
        ExpectRight(MakeProblem(shape, {{1, 300}, {1, 513}, {1, 7}}));
      }
    }
  }
}

// K and V are dequantised values: what quantising lost is none of attention's error.
TEST_P(AttentionTest, EqualsReferenceOverScaledF8) {
  for (const auto& [k_scale, v_scale] : {std::pair(1.0f, 1.0f), {0.5f, 4.0f}, {0.013f, 0.07f}}) {
    SCOPED_TRACE(k_scale);
    for (int32_t head_dim : {64, 128}) {
      const HeadShape shape = {
          .head_dim = head_dim, .dtype = DType::kF8E4M3, .k_scale = k_scale, .v_scale = v_scale};
      ExpectRight(MakeProblem(shape, {{20, 60}, {1, 70}}));
      ExpectRight(MakeProblem(shape, {{1, 60}, {1, 270}}));
    }
  }
}

TEST_P(AttentionTest, LongContextStaysAccurate) {
  const auto context = static_cast<int32_t>(Size(5000, 3000));
  for (DType dtype : KvTypes(HeadShape().head_dim)) {
    if (dtype == DType::kF32 || dtype == DType::kF16) continue;
    const HeadShape shape = {.kv_heads = 1, .dtype = dtype};
    ExpectRight(MakeProblem(shape, {{1, context}}));
    ExpectRight(MakeProblem(shape, {{1, context}}, 4.0f), 2e-4);  // peaked
    ExpectRight(MakeProblem(shape, {{40, 1500}}));
  }
}

TEST_P(AttentionTest, RowsWithoutContextAreZero) {
  for (int32_t head_dim : {32, 128}) {
    const HeadShape shape = {.head_dim = head_dim};
    ExpectRight(MakeProblem(shape, {{1, 40}, {1, 0}, {1, 3}, {1, 0}}));
    ExpectRight(MakeProblem(shape, {{1, 0}}));
  }
}

TEST_P(AttentionTest, OneHugeLogitTakesAll) {
  const auto context = static_cast<int32_t>(Size(600, 300));
  for (int32_t head_dim : {32, 128}) {
    const auto dim = static_cast<size_t>(head_dim);
    Problem p = MakeProblem({.kv_heads = 1, .group = 1, .head_dim = head_dim}, {{1, context}});
    std::fill(p.q.begin(), p.q.end(), 100.0f);
    const std::vector<float> huge(dim, 1000.0f);
    p.SetToken(0, context / 2, 0, huge);
    const std::vector<float> value(dim, 3.0f);
    p.SetToken(0, context / 2, 1, value);
    EXPECT_EQ(RunAll(p), value);
    EXPECT_EQ(RunAll(p, AttentionOp::kDecode), value);
  }
}

TEST_P(AttentionTest, EqualKeysAverageTheValues) {
  for (int32_t head_dim : {32, 64}) {
    Problem p = MakeProblem({.kv_heads = 1, .head_dim = head_dim}, {{1, 300}});
    const std::vector<float> key(static_cast<size_t>(head_dim), 0.5f);
    for (int32_t t = 0; t < 300; ++t) p.SetToken(0, t, 0, key);
    ExpectRight(p);
  }
}

TEST_P(AttentionTest, SequencesMayShareBlocks) {
  Problem p = MakeProblem({}, {{1, 64}, {1, 64}});
  std::copy_n(p.tables[0].begin(), 3, p.tables[1].begin());
  ExpectRight(p);
  p.sequences = {{1, 64}, {1, 64}, {1, 30}};
  p.tables.push_back(p.tables[0]);
  p.q = Random(3 * p.row());
  p.q = Rounded(ProductType(p.shape.dtype), p.q);
  ExpectRight(p);
}

// A plan made once serves every layer, and so do arrays that were staged.
TEST_P(AttentionTest, PlansAndStagedArraysServeEveryLayer) {
  Problem p = MakeProblem({.dtype = DType::kBF16, .window = 200}, {{1, 90}, {1, 260}, {1, 1}});
  const KvPoolView pool = p.Pool(p.pool.data());
  const int64_t elements = pool.ExtentBytes() / SizeOf(pool.dtype);
  for (int32_t block = 0; block < pool.num_blocks; ++block) {  // layer 0: V is negated
    for (int64_t i = 0; i < elements; ++i) {
      const double value = reference::Load(pool.dtype, pool.Extent(p.kLayer, block), i);
      reference::Store(pool.dtype, i < elements / 2 ? value : -value, pool.Extent(0, block), i);
    }
  }
  const AttentionBatch batch = Whole(p);
  for (AttentionOp op : {AttentionOp::kPrefill, AttentionOp::kDecode}) {
    for (SplitMode splits : {SplitMode::kBalanced, SplitMode::kFixed}) {
      AttentionRun run = {.op = op, .splits = splits};
      const std::vector<float> plain = Run(p, batch, run).out;
      run.planned = true;
      EXPECT_TRUE(BitwiseEqual(Run(p, batch, run).out, plain));
      run.staged = true;
      EXPECT_TRUE(BitwiseEqual(Run(p, batch, run).out, plain));
      run.layer = 0;
      std::vector<float> negated = Run(p, batch, run).out;
      for (float& value : negated) value = -value;
      EXPECT_TRUE(BitwiseEqual(negated, plain));
    }
  }
}

// What a later token holds, be it NaN, never reaches the rows before it, though they share tiles.
TEST_P(AttentionTest, LaterTokensNeverReachEarlierRows) {
  for (DType dtype : KvTypes(HeadShape().head_dim)) {
    SCOPED_TRACE(Name(dtype));
    Problem p = MakeProblem({.kv_heads = 1, .dtype = dtype}, {{40, 40}});
    const std::vector<float> before = RunAll(p);
    const std::vector<float> poison(64, std::numeric_limits<float>::quiet_NaN());
    p.SetToken(0, 39, 0, poison);
    p.SetToken(0, 39, 1, poison);
    const std::vector<float> after = RunAll(p);
    const size_t row = before.size() / 40;
    EXPECT_TRUE(BitwiseEqual(std::span(before).first(39 * row), std::span(after).first(39 * row)));
    EXPECT_TRUE(std::isnan(after.back()));
  }
}

TANDEM_INSTANTIATE_OPS_TEST_ON(AttentionTest, AttentionSetups());

}  // namespace
}  // namespace tandem::ops_attention_test
