#include <algorithm>
#include <cmath>

#include "tests/support/attention_fixture.h"

// How much attention blocks and tokens got, which eviction ranks them by.

namespace tandem {
namespace {

using Problem = AttentionProblem;

class AttentionMassTest : public AttentionOpsTest {
 protected:
  // Masses of a few thousandths of the whole are what eviction compares.
  void ExpectMass(std::span<const float> actual, const std::vector<double>& expected) {
    const double bound = GetParam().on_cpu() ? 5e-5 : 1e-2;
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      if (expected[i] == 0) {
        ASSERT_EQ(actual[i], 0) << "entry " << i << " that nobody sees";
      } else {
        ASSERT_NEAR(actual[i], expected[i], bound * expected[i] + 1e-6) << "entry " << i;
      }
    }
  }

  std::vector<float> BlockMass(const Problem& p, int64_t max_blocks,
                               SplitMode splits = SplitMode::kBalanced) {
    const AttentionRun run = {
        .op = AttentionOp::kDecode, .splits = splits, .mass_blocks = max_blocks};
    return Run(p, Whole(p), run).block_mass;
  }

  void ExpectBlockMass(const Problem& p, int64_t extra_blocks = 0) {
    const int64_t max_blocks = std::max<int64_t>(1, MaxBlocks(p) + extra_blocks);
    const std::vector<float> mass = BlockMass(p, max_blocks);
    ExpectMass(mass, Expected(p, max_blocks).block_mass);
    ExpectMass(BlockMass(p, max_blocks, SplitMode::kFixed), Expected(p, max_blocks).block_mass);
    for (size_t row = 0; row * static_cast<size_t>(max_blocks) < mass.size(); ++row) {
      double sum = 0;
      for (int64_t i = 0; i < max_blocks; ++i) {
        sum += mass[row * static_cast<size_t>(max_blocks) + static_cast<size_t>(i)];
      }
      const Sequence& s = p.sequences[row / static_cast<size_t>(p.shape.kv_heads)];
      const double whole = s.context == 0 ? 0 : p.shape.group;
      EXPECT_NEAR(sum, whole, (GetParam().on_cpu() ? 1e-5 : 1e-2) * whole);
    }
  }

  // ColumnMass of the last rows of every sequence, with the lse of a prefill before.
  void ExpectColumnMass(const Problem& p, int32_t last_rows, int64_t extra_tokens = 0) {
    const DType act = p.shape.act;
    const AttentionBatch batch = Whole(p);
    int64_t max_tokens = extra_tokens;
    for (const Sequence& s : p.sequences) {
      max_tokens = std::max<int64_t>(max_tokens, s.context + extra_tokens);
    }
    const DeviceArray pool = ToDevice(p.pool);
    const DeviceArray q = ToDeviceAs(act, p.q);
    const DeviceArray out = NewOutput(batch.num_rows() * p.row(), act);
    const DeviceArray lse = NewOutput(batch.num_rows() * p.num_heads());
    const DeviceArray mass = NewOutput(batch.num_sequences() * p.shape.kv_heads * max_tokens);
    ColumnMassArgs args = {.attention = HostArgs(p, batch), .last_rows = last_rows};
    args.out = Tensor(mass, {batch.num_sequences(), p.shape.kv_heads, max_tokens});
    args.attention.out = Tensor(out, {batch.num_rows(), p.num_heads(), p.shape.head_dim}, act);
    const std::vector<double> expected = reference::ColumnMass(args);
    args.attention.q = Tensor(q, {batch.num_rows(), p.num_heads(), p.shape.head_dim}, act);
    args.attention.pool = p.Pool(pool.data());
    args.attention.lse = Tensor(lse, {batch.num_rows(), p.num_heads()});
    ASSERT_TRUE(ops().AttentionPrefill(stream(), args.attention).ok());
    const absl::Status status = ops().ColumnMass(stream(), args);
    ASSERT_TRUE(status.ok()) << status;
    ExpectMass(mass.Download<float>(), expected);
  }
};

TEST_P(AttentionMassTest, BlocksEqualReferenceForEveryGroupAndType) {
  for (int32_t group : {1, 3, 4, 8, 16}) {
    SCOPED_TRACE(group);
    ExpectBlockMass(MakeProblem({.group = group}, {{1, 33}, {1, 150}}));
  }
  ExpectBlockMass(MakeProblem({.kv_heads = 1, .group = 150, .head_dim = 32}, {{1, 40}}));
  for (DType dtype : KvTypes(HeadShape().head_dim)) {
    SCOPED_TRACE(Name(dtype));
    ExpectBlockMass(MakeProblem({.dtype = dtype}, {{1, 33}, {1, 150}}));
  }
  for (DType act : ActivationTypes()) {
    ExpectBlockMass(MakeProblem({.dtype = DType::kF8E4M3, .act = act}, {{1, 33}, {1, 150}}));
  }
}

TEST_P(AttentionMassTest, BlocksEqualReferenceForEveryBlockSize) {
  for (int32_t block_tokens : {8, 16, 32, 64, 256}) {
    for (int32_t head_dim : {32, 96, 128}) {
      SCOPED_TRACE(block_tokens);
      const HeadShape shape = {.kv_heads = 1, .head_dim = head_dim, .block_tokens = block_tokens};
      ExpectBlockMass(MakeProblem(shape, {{1, block_tokens}, {1, 2 * block_tokens + 1}}));
      ExpectBlockMass(MakeProblem(shape, {{1, 1}, {1, 0}, {1, 99}}), 3);
    }
  }
}

TEST_P(AttentionMassTest, BlocksOutsideTheWindowHaveNone) {
  for (int32_t window : {1, 20, 100}) {
    SCOPED_TRACE(window);
    ExpectBlockMass(MakeProblem({.window = window}, {{1, 300}, {1, 16}, {1, 17}}));
  }
  ExpectBlockMass(MakeProblem({.softcap = 15}, {{1, 300}, {1, 16}}, 3.0f));
}

TEST_P(AttentionMassTest, BlocksOfALongContext) {
  ExpectBlockMass(MakeProblem({}, {{1, 3000}, {1, 5}, {1, 600}}));
  ExpectBlockMass(MakeProblem({.kv_heads = 1}, {{1, 3000}}, 3.0f));
}

// P2: on the CPU in every way to split, elsewhere with fixed splits.
TEST_P(AttentionMassTest, NeighboursChangeNoBitOfBlocks) {
  const Problem p = MakeProblem({}, {{1, 600}, {1, 40}, {1, 301}});
  const int64_t max_blocks = MaxBlocks(p);
  AttentionRun run = {.op = AttentionOp::kDecode, .splits = SplitMode::kFixed};
  run.mass_blocks = max_blocks;
  const std::vector<float> together = Run(p, Whole(p), run).block_mass;
  const auto row = static_cast<size_t>(p.shape.kv_heads * max_blocks);
  for (int num_threads : ThreadCounts()) {
    UseThreads(num_threads);
    for (size_t s = 0; s < p.sequences.size(); ++s) {
      EXPECT_TRUE(BitwiseEqual(Run(p, Alone(p, s), run).block_mass,
                               std::span(together).subspan(s * row, row)));
    }
  }
}

TEST_P(AttentionMassTest, ColumnsEqualReference) {
  for (int32_t last_rows : {1, 8, 32, 64}) {
    SCOPED_TRACE(last_rows);
    // Fewer rows than are asked for, as many, and more; a sequence without any.
    ExpectColumnMass(MakeProblem({}, {{20, 60}, {64, 70}, {0, 30}, {1, 17}, {90, 130}}), last_rows);
  }
}

TEST_P(AttentionMassTest, ColumnsEqualReferenceForEveryShapeAndType) {
  for (DType act : ActivationTypes()) {
    for (int32_t head_dim : {24, 64, 96, 128, 256}) {
      for (DType dtype : KvTypes(head_dim)) {
        SCOPED_TRACE(std::to_string(head_dim) + " " + std::string(Name(dtype)));
        if (act != DType::kF32 && (dtype == DType::kF16 || dtype == DType::kBF16)) continue;
        const HeadShape shape = {.kv_heads = 1,
                                 .group = 3,
                                 .head_dim = head_dim,
                                 .block_tokens = 32,
                                 .dtype = dtype,
                                 .act = act};
        ExpectColumnMass(MakeProblem(shape, {{9, 40}}), 16);
      }
    }
  }
}

TEST_P(AttentionMassTest, ColumnsOutsideTheWindowHaveNone) {
  for (int32_t window : {1, 10, 50}) {
    ExpectColumnMass(MakeProblem({.kv_heads = 1, .window = window}, {{40, 120}, {3, 90}}), 32, 7);
  }
  ExpectColumnMass(MakeProblem({.kv_heads = 1, .softcap = 10}, {{40, 120}}, 3.0f), 32);
}

// The last chunk of a long prompt, over all that was stored before.
TEST_P(AttentionMassTest, ColumnsOfALongContext) {
  ExpectColumnMass(MakeProblem({.kv_heads = 1}, {{40, 2000}, {64, 300}}), 64);
}

TANDEM_INSTANTIATE_OPS_TEST(AttentionMassTest);

}  // namespace
}  // namespace tandem
